package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
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
