package orchestrator

import (
	"context"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// durable is a Temporal server in memory as far as a gateway sees it: ids, runs,
// memos, signals, cancels and the query. What a run does is the test's.
type durable struct {
	client.Client
	mu      sync.Mutex
	runs    map[string]*durableRun
	down    bool                                   // nothing is answered
	lost    bool                                   // starts are accepted, their answers lost
	twice   bool                                   // starts are accepted, and answered as repeats
	drive   func(r *durableRun)                    // what a started run does
	reads   func(r *durableRun, at steps.ReaderAt) // what a re-attach does, besides naming
	refuse  func(method string) error              // by method, nil: nothing
	asked   []string
	drivers sync.WaitGroup
}

type durableRun struct {
	in      steps.Input
	memo    *commonpb.Memo
	status  enumspb.WorkflowExecutionStatus
	ended   time.Time
	state   steps.State
	token   handoff.Token
	signals chan steps.Ended
	cancel  chan struct{}
	why     string // it was cancelled
	closed  chan struct{}
	once    sync.Once
}

func newDurable() *durable { return &durable{runs: map[string]*durableRun{}} }

func (d *durable) enter(method string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, method)
	if d.down {
		return serviceerror.NewUnavailable("down")
	}
	if d.refuse != nil {
		return d.refuse(method)
	}
	return nil
}

func (d *durable) run(id string) *durableRun {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs[id]
}

// begin makes a run as ExecuteWorkflow does.
func (d *durable) begin(id string, in steps.Input, memo map[string]any, reuse enumspb.WorkflowIdReusePolicy) (*durableRun, error) {
	fields := map[string]*commonpb.Payload{}
	for k, v := range memo {
		p, err := converter.GetDefaultDataConverter().ToPayload(v)
		if err != nil {
			return nil, err
		}
		fields[k] = p
	}
	r := &durableRun{in: in, memo: &commonpb.Memo{Fields: fields}, status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		signals: make(chan steps.Ended, 8), cancel: make(chan struct{}), closed: make(chan struct{}),
		state: steps.State{Phase: handoff.PhaseMoving, Epoch: 1, Reader: in.Plan.Reader, Address: in.ReaderAddress, Plan: in.Plan, Route: in.Route, Input: in}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.runs[id]; old != nil && (old.status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || reuse == enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE ||
		old.status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED && reuse != enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE) {
		return nil, serviceerror.NewWorkflowExecutionAlreadyStarted("there is one", "request", "run")
	}
	d.runs[id] = r
	return r, nil
}

func (d *durable) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	if err := d.enter("start"); err != nil {
		return nil, err
	}
	r, err := d.begin(o.ID, args[0].(steps.Input), o.Memo, o.WorkflowIDReusePolicy)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	drive, lost, twice := d.drive, d.lost, d.twice
	d.mu.Unlock()
	if drive != nil {
		d.drivers.Go(func() { drive(r) })
	}
	if twice {
		return nil, serviceerror.NewWorkflowExecutionAlreadyStarted("by this very request", "request", "run")
	}
	if lost {
		return nil, serviceerror.NewDeadlineExceeded("the answer is lost")
	}
	return nil, nil
}

func (d *durable) statusOf(id string) enumspb.WorkflowExecutionStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs[id].status
}

// end closes a run.
func (d *durable) end(r *durableRun, s enumspb.WorkflowExecutionStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.status, r.ended = s, time.Now()
	r.once.Do(func() { close(r.closed) })
}

func (d *durable) running(id string) (*durableRun, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.runs[id]; r != nil && r.status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return r, nil
	}
	return nil, serviceerror.NewNotFound("no such run, or over")
}

func (d *durable) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if err := d.enter("describe"); err != nil {
		return nil, err
	}
	r := d.run(id)
	if r == nil {
		return nil, serviceerror.NewNotFound("no such run")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: "run"}, Status: r.status, Memo: r.memo, CloseTime: timestamppb.New(r.ended)}}, nil
}

func (d *durable) QueryWorkflow(_ context.Context, id, _, _ string, _ ...any) (converter.EncodedValue, error) {
	if err := d.enter("query"); err != nil {
		return nil, err
	}
	r := d.run(id)
	if r == nil {
		return nil, serviceerror.NewNotFound("no such run")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := converter.GetDefaultDataConverter().ToPayloads(r.state)
	return client.NewValue(p), err
}

func (d *durable) SignalWorkflow(_ context.Context, id, _, name string, arg any) error {
	if err := d.enter(name); err != nil {
		return err
	}
	r, err := d.running(id)
	if err != nil {
		return err
	}
	if at, ok := arg.(steps.ReaderAt); ok {
		d.mu.Lock()
		named := at.Reader.Number > r.state.Reader.Number
		if named {
			r.state.Reader, r.state.Address = at.Reader, at.Address
		}
		reads := d.reads
		d.mu.Unlock()
		if named && reads != nil {
			d.drivers.Go(func() { reads(r, at) })
		}
		return nil
	}
	r.signals <- arg.(steps.Ended)
	return nil
}

func (d *durable) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	if err := d.enter(o.UpdateName); err != nil {
		return nil, err
	}
	r, err := d.running(o.WorkflowID)
	if err != nil {
		return nil, err
	}
	r.signals <- o.Args[0].(steps.Ended)
	return updated{}, nil
}

// updated is an update that the workflow took.
type updated struct{ client.WorkflowUpdateHandle }

func (updated) Get(context.Context, any) error { return nil }

// raw is what the client has no method for.
type raw struct {
	workflowservice.WorkflowServiceClient
	d *durable
}

func (d *durable) WorkflowService() workflowservice.WorkflowServiceClient { return raw{d: d} }

func (r raw) RequestCancelWorkflowExecution(_ context.Context, in *workflowservice.RequestCancelWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.RequestCancelWorkflowExecutionResponse, error) {
	return nil, r.d.cancelled(in.GetWorkflowExecution().GetWorkflowId(), in.GetReason())
}

func (d *durable) cancelled(id, why string) error {
	if err := d.enter("cancel"); err != nil {
		return err
	}
	r, err := d.running(id)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-r.cancel:
	default:
		r.why = why
		close(r.cancel)
	}
	return nil
}

func (d *durable) GetWorkflow(_ context.Context, id, _ string) client.WorkflowRun {
	return awaited{nil, d, d.run(id)}
}

func (d *durable) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	return nil, d.enter("health")
}

func (d *durable) Close() {}

type awaited struct {
	client.WorkflowRun
	d *durable
	r *durableRun
}

func (a awaited) Get(ctx context.Context, _ any) error {
	select {
	case <-a.r.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	if a.r.status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
		return nil
	}
	return &temporal.WorkflowExecutionError{}
}

// handle is a small workflow: the steps of one epoch, by one worker.
func handle(d *durable, o *Orchestrator) func(*durableRun) {
	return func(r *durableRun) {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go func() {
			select {
			case <-r.cancel:
				stop()
			case <-ctx.Done():
			}
		}()
		in := steps.StepInput{Request: r.in, Reader: steps.ReaderAt{Reader: r.in.Plan.Reader, Address: r.in.ReaderAddress}}
		got, err := o.steps.Reserve(ctx, in)
		if err == nil {
			d.mu.Lock()
			r.token = *got.Token
			d.mu.Unlock()
			_, err = o.steps.Transfer(ctx, in)
		}
		if err == nil {
			_, err = o.steps.Commit(ctx, in)
		}
		out := steps.Outcome{Attempt: r.in.Plan.Attempt, Committed: err == nil}
		end := steps.Ended{}
		if err == nil {
			for ours := false; !ours; { // as the workflow: the end of another attempt is not this one's
				select {
				case end = <-r.signals:
					ours = end.Attempt == r.in.Plan.Attempt
				case <-r.cancel:
					end.Code, ours = handoff.CodeCancelled.String(), true
				}
			}
			out.Code, out.Finish = end.Code, end.Finish
		} else {
			out.Code, out.Detail = handoff.CodeOf(err).String(), err.Error()
		}
		undo := context.Background()
		in.Hard, in.Outcome = true, &out
		if out.Code != "" {
			o.steps.ReleaseNow(undo, r.in)
			o.steps.End(undo, in)
		} else {
			o.steps.UndoReserve(undo, in)
		}
		o.steps.Settle(undo, in)
		if out.Committed {
			d.end(r, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
		} else {
			d.end(r, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED)
		}
	}
}

// soon polls until ok, for what happens in the background.
func soon(ok func() bool) bool {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}

// reader is the process that history names for a run.
func (d *durable) reader(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.runs[id]; r != nil {
		return r.state.Reader.Process
	}
	return ""
}

// stop ends every run and waits for what it does.
func (d *durable) stop() {
	d.mu.Lock()
	for _, r := range d.runs {
		select {
		case <-r.cancel:
		default:
			close(r.cancel)
		}
	}
	d.mu.Unlock()
	d.drivers.Wait()
}
