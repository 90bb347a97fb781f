package refengine

import (
	"context"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// away refuses new work while no transferd stands beside the engine.
var away = handoff.Errorf(handoff.CodeUnavailable, "detached from transferd")

// obey does what transferd says (rule 22). Every event may come twice.
func (e *Engine) obey() {
	for ev := range e.daemon.Events() {
		switch ev.Kind {
		case client.Detached:
			e.setAttached(false)
			e.attempts.refuseNew(away)
		case client.Reattached:
			e.reattached(ev)
		case client.SourceClosed, client.SourceDrained:
			if s := e.attempts.findSource(ev.Attempt); s != nil {
				e.sourceEvent(s, ev)
			}
		default:
			if t := e.attempts.findTarget(ev.Attempt); t != nil {
				e.targetEvent(t, ev)
			}
		}
	}
}

// reattached: adopted targets are committed, whether or not we heard so before
// (rule 9). What is over has its own events, which follow.
func (e *Engine) reattached(ev client.Event) {
	for _, a := range ev.Adopted {
		if t := e.attempts.findTarget(a); t != nil {
			t.committed.set()
		}
	}
	e.setAttached(true)
	if e.ctx.Err() == nil {
		e.attempts.refuseNew(nil)
	}
}

func (e *Engine) setAttached(on bool) {
	e.attached.Store(on)
	select {
	case e.changes <- struct{}{}:
	default: // one is there that nobody took yet
	}
}

func (e *Engine) sourceEvent(s *source, ev client.Event) {
	s.end(closedBecause(ev.Cause, ev.Attempt)) // a drain without a close would be one
	s.gone.set()
	if ev.Kind == client.SourceDrained {
		s.drained.set()
	}
}

func (e *Engine) targetEvent(t *target, ev client.Event) {
	switch ev.Kind {
	case client.TargetCommitted:
		t.committed.set()
	case client.TargetClosed, client.TargetAborted:
		e.targetOver(t, ev)
	case client.TargetDrained:
		e.targetOver(t, ev) // changes nothing after the event that it follows
		t.drained.set()
	}
}

func (e *Engine) targetOver(t *target, ev client.Event) {
	if t.committed.isSet() {
		e.abortTarget(t, ev)
	} else {
		e.endTarget(t, closedBecause(ev.Cause, ev.Attempt))
	}
	t.gone.set()
}

// abortTarget ends a decode that transferd ended. The code stays *aborted*
// whatever the cause: that attempt was committed, so nobody may take its end for
// a leave to plan another (rule 5). After a decode that is complete it changes
// nothing.
func (e *Engine) abortTarget(t *target, ev client.Event) {
	if t.log.Over() {
		t.stop.set()
		return
	}
	e.endTarget(t, handoff.Errorf(handoff.CodeAborted, "%s was ended after its commit: %s", ev.Attempt, ev.Cause))
}

// closedBecause types the end of what was never committed here.
func closedBecause(cause handoff.Code, a handoff.Attempt) error {
	switch cause {
	case handoff.CodeNone, handoff.CodeUnavailable:
		cause = handoff.CodeClosed
	}
	return handoff.Errorf(cause, "%s is closed", a)
}

// cancelAttempt stops computing for an attempt at once, on both sides, and leaves a
// tombstone where it is not known.
//
// Idempotent: the first cause of an end counts.
func (e *Engine) cancelAttempt(_ context.Context, plan handoff.Plan) (known bool, err error) {
	why := handoff.Errorf(handoff.CodeCancelled, "%s was cancelled", plan.Attempt)
	s, t, known, err := e.attempts.cancel(plan, why)
	if err != nil {
		return known, err
	}
	if s != nil {
		s.end(why)
	}
	if t != nil {
		e.endTarget(t, why)
	}
	return known, nil
}
