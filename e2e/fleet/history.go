package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/surehand/surehand/contracts/steps"
)

// DefaultTenant is whom a request without a tenant belongs to.
const DefaultTenant = "default"

// History gives every event of the newest run of a handoff.
func (f *Fleet) History(ctx context.Context, tenant, id string) (*historypb.History, error) {
	events := f.temporal.GetWorkflowHistory(ctx, tenant+"/"+id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	h := &historypb.History{}
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("history of %s: %w", id, err)
		}
		h.Events = append(h.Events, e)
	}
	return h, nil
}

// Handoffs are the ids of all handoffs of the default tenant that are kept.
func (f *Fleet) Handoffs(ctx context.Context) (out []string, err error) {
	var page []byte
	for {
		list, err := f.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000, NextPageToken: page,
			Query: fmt.Sprintf("WorkflowType = %q", steps.Workflow)})
		if err != nil {
			return nil, err
		}
		for _, e := range list.GetExecutions() {
			if id, ok := strings.CutPrefix(e.GetExecution().GetWorkflowId(), DefaultTenant+"/"); ok {
				out = append(out, id)
			}
		}
		if page = list.GetNextPageToken(); len(page) == 0 {
			return out, nil
		}
	}
}

// RunningOf are the ids of a tenant's handoffs that run.
func (f *Fleet) RunningOf(ctx context.Context, tenant string) (out []string, err error) {
	list, err := f.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000,
		Query: fmt.Sprintf("WorkflowType = %q AND ExecutionStatus = 'Running'", steps.Workflow)})
	for _, e := range list.GetExecutions() {
		if id, ok := strings.CutPrefix(e.GetExecution().GetWorkflowId(), tenant+"/"); ok {
			out = append(out, id)
		}
	}
	return out, err
}

// Forget deletes a handoff's history, as retention does in its time, and waits
// until nobody finds it any more.
func (f *Fleet) Forget(ctx context.Context, tenant, id string) error {
	w := &commonpb.WorkflowExecution{WorkflowId: tenant + "/" + id}
	_, err := f.temporal.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{Namespace: "default", WorkflowExecution: w})
	if err != nil {
		return err
	}
	for {
		_, err := f.temporal.DescribeWorkflowExecution(ctx, w.WorkflowId, "")
		var none *serviceerror.NotFound
		if errors.As(err, &none) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the history of %s stays: %w", id, ctx.Err())
		case <-time.After(5 * pollEvery):
		}
	}
}

// Reset has a handoff's run begin anew from its first task, as an operator of
// Temporal may do.
func (f *Fleet) Reset(ctx context.Context, tenant, id string) error {
	h, err := f.History(ctx, tenant, id)
	if err != nil {
		return err
	}
	for _, e := range h.GetEvents() {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			_, err := f.temporal.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{Namespace: "default", Reason: "a test", RequestId: rand.Text(),
				WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: tenant + "/" + id}, WorkflowTaskFinishEventId: e.GetEventId()})
			return err
		}
	}
	return fmt.Errorf("no task of %s is completed yet", id)
}

// Terminate ends a handoff's run as an operator of Temporal may do.
func (f *Fleet) Terminate(ctx context.Context, tenant, id string) error {
	return f.temporal.TerminateWorkflow(ctx, tenant+"/"+id, "", "a test")
}

// Outcome waits for the end of a handoff's workflow and reads what it says of
// itself, however it ended.
func (f *Fleet) Outcome(ctx context.Context, tenant, id string) (steps.Outcome, error) {
	var out steps.Outcome
	err := f.temporal.GetWorkflow(ctx, tenant+"/"+id, "").Get(ctx, &out)
	var refused *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case errors.As(err, &refused) && refused.HasDetails():
		return out, refused.Details(&out)
	case errors.As(err, &cancelled) && cancelled.HasDetails():
		return out, cancelled.Details(&out)
	}
	return out, err
}

// Steps lists the steps that a history shows as done, in its own order: local
// activities are markers, normal ones events.
func Steps(h *historypb.History) ([]string, error) {
	var out []string
	for _, e := range h.GetEvents() {
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_MARKER_RECORDED:
			m := e.GetMarkerRecordedEventAttributes()
			if m.GetMarkerName() != "LocalActivity" {
				continue
			}
			var data struct{ ActivityType string }
			if err := converter.GetDefaultDataConverter().FromPayloads(m.GetDetails()["data"], &data); err != nil {
				return nil, fmt.Errorf("a local activity's marker: %w", err)
			}
			out = append(out, data.ActivityType)
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			out = append(out, e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName())
		}
	}
	return out, nil
}

// Tell lists the types of a history's events, for people.
func Tell(h *historypb.History) string {
	var out strings.Builder
	for _, e := range h.GetEvents() {
		fmt.Fprintf(&out, "%3d %s\n", e.GetEventId(), strings.TrimPrefix(e.GetEventType().String(), "EVENT_TYPE_"))
	}
	return out.String()
}
