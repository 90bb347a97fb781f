package activities

import (
	"context"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Commit asks TD to make the target visible, once. Only the workflow issues it,
// never a head start, so nothing is visible before the request is durable.
//
// Idempotent: TD's table; a repeat answers the present state, which is asked for
// anew each time (rule 8). Undo: none takes it back; a release ends it.
func (s *Steps) Commit(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	a, err := s.Attempts.hold(in.Request.Plan, in.Request.Route)
	if err != nil {
		return steps.Output{}, err
	}
	r := in.Request
	reserved, err := s.reserve(ctx, a, in)
	if err != nil {
		return steps.Output{}, err
	}
	d, err := s.Movers.Mover(r.Route.D.Control)
	if err != nil {
		return steps.Output{}, err
	}
	out := steps.Output{Engine: string(r.Plan.D.Engine), StartMicros: s.Attempts.since(a)}
	got, err := d.Commit(ctx, r.Plan, *reserved.Token, operation(in, handoff.StepCommit), r.Lease)
	out.EndMicros = s.Attempts.since(a)
	if err != nil {
		return out, err
	}
	out.State = got.State.String()
	if got.State != handoff.TargetCommitted {
		return out, handoff.Errorf(handoff.CodeInternal, "commit answered %s", got.State)
	}
	if !s.Local(in.Reader) { // whose process keeps the attempt and renews it
		s.Attempts.Forget(r.Plan.Attempt) // the decode's lease is its reader's to renew (rule 14)
	}
	return out, nil
}
