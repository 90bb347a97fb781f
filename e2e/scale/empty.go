package scale

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// floor runs empty workflows, the least that Temporal and its SDK ask for what a
// history records: a start, one local step and an end, and for a stream one
// update before it. What a handoff costs beyond that is ours.
type floor struct {
	temporal client.Client
	worker   worker.Worker
	stepped  sync.Map // workflow id → channel, closed by its step
}

// Names of the empty workflow's parts.
const (
	emptyQueue    = "empty"
	emptyWorkflow = "empty"
)

// startEmpty runs Temporal alone; this process is the client and the worker, as
// a gateway is both.
func startEmpty(ctx context.Context, p fleet.Programs, dir string, x Cell) (*fleet.Fleet, sender, func(), error) {
	none := func() {}
	f, err := fleet.Bare(p, dir)
	if err != nil {
		return f, nil, none, err
	}
	if err := f.StartTemporal(ctx); err != nil {
		return f, nil, none, err
	}
	e := &floor{}
	e.temporal, err = client.DialContext(ctx, client.Options{HostPort: f.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}}})
	if err != nil {
		return f, nil, none, err
	}
	e.worker = worker.New(e.temporal, emptyQueue, worker.Options{})
	e.worker.RegisterWorkflowWithOptions(e.run, workflow.RegisterOptions{Name: emptyWorkflow})
	if err := e.worker.Start(); err != nil {
		e.temporal.Close()
		return f, nil, none, err
	}
	began := time.Now().UnixNano()
	send := func(ctx context.Context, _, _ int) traffic.Answer {
		return traffic.Answer{Broken: e.ask(ctx, fmt.Sprintf("empty-%d-%d", began, asked.Add(1)), x.Record)}
	}
	return f, send, func() { e.worker.Stop(); e.temporal.Close() }, nil
}

func (e *floor) run(ctx workflow.Context, record string) error {
	ended := false
	err := workflow.SetUpdateHandler(ctx, steps.UpdateEnded, func(workflow.Context) error {
		ended = true
		return nil
	})
	if err != nil {
		return err
	}
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: time.Minute})
	if err := workflow.ExecuteLocalActivity(ctx, e.step, workflow.GetInfo(ctx).WorkflowExecution.ID).Get(ctx, nil); err != nil {
		return err
	}
	if record == string(steps.RecordHandoff) {
		return nil
	}
	return workflow.Await(ctx, func() bool { return ended })
}

// step lets the client of the workflow go on. Idempotent.
func (e *floor) step(_ context.Context, id string) error {
	if told, waits := e.stepped.LoadAndDelete(id); waits {
		close(told.(chan struct{}))
	}
	return nil
}

func (e *floor) ask(ctx context.Context, id, record string) error {
	told := make(chan struct{})
	e.stepped.Store(id, told)
	_, err := e.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: emptyQueue, EnableEagerStart: true,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL}, emptyWorkflow, record)
	if err != nil {
		return err
	}
	select {
	case <-told:
	case <-ctx.Done():
		return ctx.Err()
	}
	if record == string(steps.RecordHandoff) {
		return nil
	}
	end, err := e.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: id, UpdateID: id, UpdateName: steps.UpdateEnded,
		WaitForStage: client.WorkflowUpdateStageCompleted})
	if err != nil {
		return err
	}
	return end.Get(ctx, nil)
}
