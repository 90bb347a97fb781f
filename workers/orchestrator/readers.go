package orchestrator

import (
	"context"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// readers answers for this process and asks others over gRPC. A worker asks the
// reader that history names, never its own gateway in its stead (rule 5c, 4).
type readers struct{ o *Orchestrator }

func (o *Orchestrator) local(at steps.ReaderAt) bool {
	return at.Reader.Process == o.cfg.Process && at.Reader.Incarnation == o.incarnation
}

// GiveUp asks whoever history names.
func (r readers) GiveUp(ctx context.Context, at steps.ReaderAt, a handoff.Attempt) (bool, error) {
	if r.o.local(at) {
		return r.o.GiveUp(ctx, at.Reader, a)
	}
	return r.o.cfg.Remote.GiveUp(ctx, at, a)
}

// Planned tells whoever history names.
func (r readers) Planned(ctx context.Context, at steps.ReaderAt, p handoff.Plan, route steps.Route, token handoff.Token) error {
	if r.o.local(at) {
		return r.o.Planned(ctx, p, route, token)
	}
	return r.o.cfg.Remote.Planned(ctx, at, p, route, token)
}

// Ended tells whoever history names.
func (r readers) Ended(ctx context.Context, at steps.ReaderAt, a handoff.Attempt, code handoff.Code, detail string) error {
	if r.o.local(at) {
		return r.o.Ended(ctx, a, code, detail)
	}
	return r.o.cfg.Remote.Ended(ctx, at, a, code, detail)
}

// GiveUp answers rule 5(c) for a stream of this very process and life.
func (o *Orchestrator) GiveUp(_ context.Context, reader handoff.Reader, a handoff.Attempt) (bool, error) {
	if reader.Process != o.cfg.Process || reader.Incarnation != o.incarnation {
		return false, handoff.Errorf(handoff.CodeStaleIncarnation, "this is reader %s of another life", o.cfg.Process)
	}
	s := o.hub.run(a.Handoff)
	if s == nil {
		// A stream that was forgotten may have delivered: nothing can be said.
		return false, handoff.Errorf(handoff.CodeGone, "no stream of %s is read here", a.Handoff)
	}
	fenced := s.fenced(a)
	switch s.giveUp(a) {
	case handoff.ReaderGivenUp:
		o.steps.Attempts.Unkeep(a) // it renews the decode lease no more
		if !fenced {
			// Who asked may be a worker that lost the workflow to another, which
			// has committed a since: history must hear that nobody will read it.
			end := s.report(a)
			end.Code, end.Detail = handoff.CodeEngine.String(), "the reader gave the attempt up when it was asked to"
			o.report(s, end)
		}
		return true, nil
	case handoff.ReaderDelivering:
		return false, nil
	}
	return false, handoff.Errorf(handoff.CodeTooLarge, "the reader of %s records no more attempts", a.Handoff)
}

// Planned takes the newest planned attempt of a stream read here and attaches,
// once: a repeat finds it attached.
func (o *Orchestrator) Planned(_ context.Context, p handoff.Plan, route steps.Route, token handoff.Token) error {
	s := o.hub.run(p.Attempt.Handoff)
	if s == nil {
		return handoff.Errorf(handoff.CodeGone, "no stream of %s is read here", p.Attempt.Handoff)
	}
	ctx, detach := context.WithCancel(o.life)
	old, fresh, err := s.plan(p, route, detach)
	if err != nil || !fresh {
		detach()
		return err
	}
	if old.Epoch != 0 {
		o.steps.Attempts.Unkeep(old)
		o.fleet.Step(old, handoff.StepReserve, errNotBegun) // a permit that no step settled here
	}
	if err := o.steps.Attempts.Keep(p, route); err != nil {
		s.giveUp(p.Attempt)
		return err
	}
	o.background(func(context.Context) {
		defer detach()
		o.read(ctx, s, p, route, token)
	})
	return nil
}

// Ended ends a stream read here that has no end of its own yet.
func (o *Orchestrator) Ended(_ context.Context, a handoff.Attempt, code handoff.Code, detail string) error {
	s := o.hub.run(a.Handoff)
	if s == nil || s.input().Plan.Attempt.Handoff != a.Handoff {
		return nil // forgotten: it was over
	}
	s.fail(&handoff.Error{Code: code, Detail: detail})
	return nil
}
