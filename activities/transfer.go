package activities

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/transferd/client"
)

// Transfer lets D's transferd pull the state from P's, verify it and ask the
// question of the validated read. It needs the token of reserve and the
// capability of prefill and joins both, so that it runs beside them.
//
// Idempotent: TD joins the pull that runs for the target; a validated target
// answers at once. Undo: UndoTransfer.
func (s *Steps) Transfer(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	a, err := s.Attempts.hold(in.Request.Plan, in.Request.Route)
	if err != nil {
		return steps.Output{}, err
	}
	return s.Attempts.do(ctx, a, handoff.StepTransfer, in.Request.Deadline, traced(in, handoff.StepTransfer, func(ctx context.Context) (steps.Output, error) {
		return s.transfer(ctx, a, in)
	}))
}

func (s *Steps) transfer(ctx context.Context, a *attempt, in steps.StepInput) (steps.Output, error) {
	reserved, err := s.reserve(ctx, a, in)
	if err != nil {
		return steps.Output{}, err
	}
	src, err := s.sourceOf(ctx, a, in)
	if err != nil {
		return steps.Output{}, err
	}
	r := in.Request
	d, err := s.Movers.Mover(r.Route.D.Control)
	if err != nil {
		return steps.Output{}, err
	}
	got, err := d.Pull(ctx, client.PullSpec{Plan: r.Plan, Token: *reserved.Token, SourceAddress: src.address, Capability: src.capability, Require: s.RequireLane}, nil)
	if err != nil {
		return steps.Output{}, err
	}
	if s.Scattered != nil {
		s.Scattered(r.Plan, r.PromptTokens, time.Duration(got.ScatterMicros)*time.Microsecond)
	}
	return steps.Output{Bytes: got.Bytes, Pieces: got.Pieces, Lane: got.Lane, Repulled: got.Repulled, Engine: string(r.Plan.D.Engine)}, nil
}

// sourceOf waits until P's source is open, or sealed when the prompt is short.
// It joins the prefill and leaves it running.
func (s *Steps) sourceOf(ctx context.Context, a *attempt, in steps.StepInput) (opened, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	end := make(chan error, 1)
	go func() {
		_, err := s.prefill(ctx, a, in)
		end <- err
	}()
	early := a.opened
	if in.Request.PromptTokens < s.SerialBelow {
		early = nil
	}
	select {
	case <-early:
	case err := <-end:
		if err != nil {
			return opened{}, err
		}
	}
	select {
	case <-a.opened:
		return a.source, nil
	default:
		return opened{}, handoff.Errorf(handoff.CodeInternal, "P sealed a source that it never opened")
	}
}
