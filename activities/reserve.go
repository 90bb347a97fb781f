package activities

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// reserveBudget bounds one try to reserve; the workflow's own budget is shorter.
const reserveBudget = 5 * time.Second

// Reserve takes room on D before any prefill: the ledger's promise, then D's
// blocks, a generation and τ from D's transferd.
//
// Idempotent: the promise is keyed by the attempt, D answers the token of the
// target that is open. Undo: UndoReserve (promise), UndoTransfer (target).
func (s *Steps) Reserve(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	a, err := s.Attempts.hold(in.Request.Plan, in.Request.Route)
	if err != nil {
		return steps.Output{}, err
	}
	out, err := s.reserve(ctx, a, in)
	out.Told = out.Told && s.Local(in.Reader) // what an earlier try did may have told an earlier reader
	return out, err
}

func (s *Steps) reserve(ctx context.Context, a *attempt, in steps.StepInput) (steps.Output, error) {
	return s.Attempts.do(ctx, a, handoff.StepReserve, reserveBudget, traced(in, handoff.StepReserve, func(ctx context.Context) (steps.Output, error) {
		r := in.Request
		err := s.Ledger.Reserve(ctx, ledger.ReserveRequest{Engine: r.Plan.D.Engine, Incarnation: r.Plan.D.Incarnation,
			Attempt: r.Plan.Attempt, Blocks: r.Route.Blocks, Lease: r.Lease})
		if err != nil {
			return steps.Output{}, err
		}
		body, err := s.Bodies.Body(ctx, r.Tenant, r.Plan.Attempt.Handoff)
		if err != nil {
			return steps.Output{}, err
		}
		d, err := s.Engines.Engine(r.Route.D.Engine)
		if err != nil {
			return steps.Output{}, err
		}
		got, err := d.Reserve(ctx, engine.Reservation{Plan: r.Plan, PromptTokens: r.PromptTokens, Prompt: body.Prompt, Sampling: sampling(r, body),
			TenantSalt: body.salt(r.Tenant), Lease: r.Lease, Revision: r.Revision})
		if err != nil {
			return steps.Output{}, err
		}
		out := steps.Output{Token: &got.Token, Blocks: got.Blocks, Engine: string(r.Plan.D.Engine)}
		if s.Local(in.Reader) {
			// The reader attaches to the newest planned attempt (rule 5c, clause 7).
			// A reader elsewhere is told by a step of its own: its silence must not
			// cost the reservation.
			if err := s.Readers.Planned(ctx, in.Reader, r.Plan, r.Route, got.Token); err != nil {
				return steps.Output{}, err
			}
			out.Told = true
		}
		return out, nil
	}))
}

func sampling(in steps.Input, b Body) engine.Sampling {
	s := in.Sampling
	out := engine.Sampling{Temperature: s.Temperature, TopP: s.TopP, Seed: s.Seed, MaxTokens: s.MaxTokens, Stop: b.Stop}
	if in.Resumed != nil {
		out.Drawn = in.Resumed.Position
	}
	return out
}

// answered is what of the answer stands before a resume; nothing without one.
func (s *Steps) answered(ctx context.Context, in steps.Input) ([]byte, error) {
	if in.Resumed == nil {
		return nil, nil
	}
	if s.Delivered == nil {
		return nil, handoff.Errorf(handoff.CodeGone, "nobody here keeps what was delivered")
	}
	return s.Delivered(ctx, in)
}
