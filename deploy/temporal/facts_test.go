package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// These two tests hold the server to the facts of Temporal that the handoff
// protocol rests on. When one fails, the protocol is wrong, not the test.

// A worker that lost its workflow task to another cannot complete it: two
// workers that both think they run a handoff cannot both move it on.
func TestTheLateCompletionOfASupersededTaskIsRejected(t *testing.T) {
	raw, ctx := startServer(t, dataDir(t)).raw(t), within(t)
	taskQueue := &taskqueuepb.TaskQueue{Name: queue}
	started, err := raw.StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
		Namespace: "default", WorkflowId: "superseded", RequestId: "1",
		WorkflowType: &commonpb.WorkflowType{Name: "any"}, TaskQueue: taskQueue,
		WorkflowTaskTimeout: durationpb.New(time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	poll := func(identity string) *workflowservice.PollWorkflowTaskQueueResponse {
		t.Helper()
		task, err := raw.PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{
			Namespace: "default", TaskQueue: taskQueue, Identity: identity,
		})
		if err != nil || len(task.GetTaskToken()) == 0 {
			t.Fatalf("%s gets no task: %v", identity, err)
		}
		return task
	}
	complete := func(token []byte, result string) error {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(result)
		if err != nil {
			t.Fatal(err)
		}
		_, err = raw.RespondWorkflowTaskCompleted(ctx, &workflowservice.RespondWorkflowTaskCompletedRequest{
			Namespace: "default", TaskToken: token,
			Commands: []*commandpb.Command{{
				CommandType: enumspb.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
				Attributes: &commandpb.Command_CompleteWorkflowExecutionCommandAttributes{
					CompleteWorkflowExecutionCommandAttributes: &commandpb.CompleteWorkflowExecutionCommandAttributes{Result: payloads},
				},
			}},
		})
		return err
	}

	slow := poll("slow worker")
	fast := poll("fast worker") // returns once the slow one's second is over
	if fast.GetAttempt() != slow.GetAttempt()+1 {
		t.Fatalf("attempts %d and %d", slow.GetAttempt(), fast.GetAttempt())
	}
	var notFound *serviceerror.NotFound
	late := serviceerror.FromStatus(status.Convert(complete(slow.GetTaskToken(), "slow")))
	if !errors.As(late, &notFound) || !strings.Contains(late.Error(), "Workflow task not found") {
		t.Fatalf("the late completion got: %v", late)
	}
	if err := complete(fast.GetTaskToken(), "fast"); err != nil {
		t.Fatal(err)
	}
	history, err := raw.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: "default", Execution: &commonpb.WorkflowExecution{WorkflowId: "superseded", RunId: started.GetRunId()},
		HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT, WaitNewEvent: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var result string
	closing := history.GetHistory().GetEvents()[0].GetWorkflowExecutionCompletedEventAttributes()
	if err := converter.GetDefaultDataConverter().FromPayloads(closing.GetResult(), &result); err != nil || result != "fast" {
		t.Fatalf("result %q: %v", result, err)
	}
}

// firstTaskStarted is the event to reset to: before the first task completed.
const firstTaskStarted = 3

// identity is what an activity is told of the workflow it works for.
type identity struct{ Original, Run string }

// tell hands the workflow's identity to an activity as input, which is the
// only way an activity learns it: its own info names just the current run.
func tell(ctx workflow.Context) (identity, error) {
	info := workflow.GetInfo(ctx)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: patience})
	var heard identity
	err := workflow.ExecuteActivity(ctx, "hear", identity{Original: info.OriginalRunID, Run: info.WorkflowExecution.RunID}).Get(ctx, &heard)
	return heard, err
}

// A reset makes a new run, but the identity that operations are idempotent
// under stays: a reset handoff cannot do its steps a second time under new ids.
func TestTheOriginalRunIDSurvivesAReset(t *testing.T) {
	s, ctx := startServer(t, dataDir(t)), within(t)
	c, raw := s.client(t), s.raw(t)
	w := startWorker(t, c, func(w worker.Worker) {
		w.RegisterWorkflow(tell)
		w.RegisterActivityWithOptions(func(_ context.Context, told identity) (identity, error) { return told, nil }, activity.RegisterOptions{Name: "hear"})
	})
	defer w.Stop()
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "reset", TaskQueue: queue}, tell)
	if err != nil {
		t.Fatal(err)
	}
	var before, after identity
	if err := run.Get(ctx, &before); err != nil {
		t.Fatal(err)
	}
	reset, err := raw.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", RequestId: "1", Reason: "to see what stays",
		WorkflowExecution:         &commonpb.WorkflowExecution{WorkflowId: "reset", RunId: run.GetRunID()},
		WorkflowTaskFinishEventId: firstTaskStarted,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.GetWorkflow(ctx, "reset", reset.GetRunId()).Get(ctx, &after); err != nil {
		t.Fatal(err)
	}
	if reset.GetRunId() == run.GetRunID() || after.Run != reset.GetRunId() {
		t.Fatalf("no new run: %s, then %s (the activity heard %s)", run.GetRunID(), reset.GetRunId(), after.Run)
	}
	if want := (identity{Original: run.GetRunID(), Run: run.GetRunID()}); before != want {
		t.Fatalf("before the reset the activity heard %+v, not %+v", before, want)
	}
	if after.Original != run.GetRunID() {
		t.Fatalf("after the reset the activity heard %s as the original run, not %s", after.Original, run.GetRunID())
	}
}
