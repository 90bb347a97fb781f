package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/workflows"
)

// A worker is lost within a task: what it did is done, and nothing of it recorded.
// The next one hears of what came since, a client that came again, before it takes
// what came then, the plan of epoch 2, whose proof the new reader's name voids. So
// the lost one must not have begun anything under that plan.
func TestAPlanThatIsActedUponIsRecorded(t *testing.T) {
	f := deaf(t)
	f.in.NoAttributes = true
	second := f.gate("gate-1")
	f.steps.Local = func(at steps.ReaderAt) bool { return at.Reader.Process == "gate-0" } // where both workers run
	server := realServer(t)
	lost, first := f.worker(t, server)
	c := dial(t, server, context.Background())
	id := "lost"

	var planned atomic.Pointer[handoff.Plan]
	var mu sync.Mutex
	var begun []handoff.Attempt // beyond epoch 1, committed
	f.stream = func(p handoff.Plan) {
		if p.Attempt.Epoch == 1 {
			f.w.Silence("d0", true)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(begun, p.Attempt) {
			begun = append(begun, p.Attempt)
		}
		if planned.Load() == nil {
			lost()
			if err := c.SignalWorkflow(context.Background(), id, "", steps.SignalReattach, steps.ReaderAt{Reader: second.reader, Address: "gate-1"}); err != nil {
				t.Error(err)
			}
		}
		planned.Store(&p)
	}
	run, err := c.ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{ID: id, TaskQueue: queue, WorkflowTaskTimeout: workflows.TaskTimeout}, steps.Workflow, f.in)
	if err != nil {
		t.Fatal(err)
	}
	f.await(func() bool { return planned.Load() != nil })
	first()
	_, stop := f.worker(t, server)
	defer stop()
	f.await(func() bool {
		second.mu.Lock()
		defer second.mu.Unlock()
		return slices.Contains(second.planned, planned.Load().Attempt)
	})
	p := *planned.Load()
	p.Reader = second.reader
	if _, ok := f.deliver(p); !ok {
		t.Error("the new reader may not deliver")
	}
	f.w.Finish(string(p.D.Engine), p.Attempt)
	end := steps.Ended{Attempt: p.Attempt, Reader: second.reader, Finish: "stop", Usage: steps.Usage{Completion: 5}}
	if err := c.SignalWorkflow(context.Background(), id, "", steps.SignalEnded, end); err != nil {
		t.Fatal(err)
	}
	f.w.Silence("d0", false)
	var out steps.Outcome
	if err := run.Get(context.Background(), &out); err != nil || out.Attempt != p.Attempt {
		t.Errorf("%+v, %v", out, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(begun) != 1 {
		t.Errorf("beside each other are committed: %v", begun)
	}
	f.safe()
}

// await gives up only on what hangs.
func (f *flow) await(done func() bool) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("it hangs; calls: %v", f.names())
		}
	}
}

const queue = "q"

func realServer(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real server")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	path, err := fleet.TemporalServer(t.Context(), root, false)
	if errors.Is(err, fleet.ErrNoTemporal) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "surehand-")
	if err != nil {
		t.Fatal(err)
	}
	fl, err := fleet.Bare(fleet.Programs{Temporal: path}, dir)
	t.Cleanup(func() {
		if err := errors.Join(fl.Stop(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	if err == nil {
		err = fl.StartTemporal(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return fl.TemporalAddress
}

// dial connects until the test ends; nothing is sent any more once life is over.
func dial(t *testing.T, server string, life context.Context) client.Client {
	t.Helper()
	until := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	c, err := client.Dial(client.Options{HostPort: server, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(until)}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// worker runs one with the flow's steps: lost cuts it off, stop ends it.
func (f *flow) worker(t *testing.T, server string) (lost, stop func()) {
	t.Helper()
	life, lost := context.WithCancel(context.Background())
	w := worker.New(dial(t, server, life), queue, worker.Options{WorkerStopTimeout: time.Second})
	w.RegisterWorkflowWithOptions(workflows.Handoff, workflow.RegisterOptions{Name: steps.Workflow})
	f.steps.Register(faulty{w, f})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return lost, func() {
		lost()
		w.Stop()
	}
}

// faulty is a real worker's registry that passes every call through the faults.
type faulty struct {
	worker.ActivityRegistry
	f *flow
}

func (r faulty) RegisterActivityWithOptions(a any, o activity.RegisterOptions) {
	step, inner := handoff.Step(o.Name), a.(stepFunc)
	r.ActivityRegistry.RegisterActivityWithOptions(func(ctx context.Context, in steps.StepInput) (steps.Output, error) {
		return r.f.call(ctx, step, in, inner)
	}, o)
}
