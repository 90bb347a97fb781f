package client

import (
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

func eventsOf(m *transferv1.DaemonMessage) ([]Event, error) {
	switch body := m.GetBody().(type) {
	case *transferv1.DaemonMessage_TargetEvent:
		return targetEvents(body.TargetEvent)
	case *transferv1.DaemonMessage_SourceEvent:
		return sourceEvents(body.SourceEvent)
	}
	return nil, handoff.Errorf(handoff.CodeInvalid, "not an event")
}

func targetEvents(m *transferv1.TargetEvent) ([]Event, error) {
	a, err := rpc.FromAttempt(m.GetAttempt())
	if err != nil {
		return nil, err
	}
	e := Event{Attempt: a, Drained: m.GetDrained()}
	if m.GetCause() != "" {
		e.Cause = handoff.ParseCode(m.GetCause())
	}
	switch m.GetState() {
	case transferv1.TargetState_TARGET_STATE_COMMITTED:
		e.Kind = TargetCommitted
	case transferv1.TargetState_TARGET_STATE_CLOSED:
		e.Kind = TargetClosed
	case transferv1.TargetState_TARGET_STATE_ABORTED:
		e.Kind = TargetAborted
	case transferv1.TargetState_TARGET_STATE_UNSPECIFIED: // only the drain is news
		e.Kind = TargetDrained
		return []Event{e}, nil
	default:
		return nil, handoff.Errorf(handoff.CodeInvalid, "event of state %s", m.GetState())
	}
	events := []Event{e}
	if e.Drained {
		e.Kind = TargetDrained
		events = append(events, e)
	}
	return events, nil
}

func sourceEvents(m *transferv1.SourceEvent) ([]Event, error) {
	a, err := rpc.FromAttempt(m.GetAttempt())
	if err != nil {
		return nil, err
	}
	e := Event{Kind: SourceClosed, Attempt: a, Drained: m.GetDrained()}
	if m.GetCause() != "" {
		e.Cause = handoff.ParseCode(m.GetCause())
	}
	var events []Event
	if m.GetState() == transferv1.SourceState_SOURCE_STATE_CLOSED {
		events = append(events, e)
	}
	if e.Drained {
		e.Kind = SourceDrained
		events = append(events, e)
	}
	return events, nil
}
