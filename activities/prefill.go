package activities

import (
	"context"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Prefill computes the prompt at P, which announces and seals its state.
//
// Idempotent: P joins the run of the attempt and tells it from the beginning;
// an attempt that is closed stays closed. Undo: UndoPrefill.
func (s *Steps) Prefill(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	a, err := s.Attempts.hold(in.Request.Plan, in.Request.Route)
	if err != nil {
		return steps.Output{}, err
	}
	return s.prefill(ctx, a, in)
}

func (s *Steps) prefill(ctx context.Context, a *attempt, in steps.StepInput) (steps.Output, error) {
	return s.Attempts.do(ctx, a, handoff.StepPrefill, in.Request.Deadline, traced(in, handoff.StepPrefill, func(ctx context.Context) (steps.Output, error) {
		r := in.Request
		body, err := s.Bodies.Body(ctx, r.Tenant, r.Plan.Attempt.Handoff)
		if err != nil {
			return steps.Output{}, err
		}
		answered, err := s.answered(ctx, r)
		if err != nil {
			return steps.Output{}, err
		}
		p, err := s.Engines.Engine(r.Route.P.Engine)
		if err != nil {
			return steps.Output{}, err
		}
		sealed, err := p.Prefill(ctx, engine.Prefill{Plan: r.Plan, Prompt: body.Prompt, Answered: answered, Sampling: sampling(r, body),
			TenantSalt: body.salt(r.Tenant), Lease: r.Lease}, func(o engine.Opened) {
			s.Attempts.open(a, opened{capability: o.Capability, address: o.SourceAddress, tokens: o.PromptTokens})
		}, nil)
		if err != nil {
			return steps.Output{}, err
		}
		return steps.Output{PromptTokens: sealed.PromptTokens, CachedTokens: sealed.CachedTokens, Engine: string(r.Plan.P.Engine)}, nil
	}))
}
