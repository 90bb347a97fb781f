package activities

import (
	"context"
	"crypto/rand"
	"encoding/binary"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/transferd/client"
)

// Place chooses the plan of the next epoch, away from the engines that failed.
// Nothing acts under it before its completion is history (rule 2).
//
// Idempotent: it takes nothing; a repeat may choose otherwise, and only the plan
// that history holds counts. Undo: none, a plan alone holds nothing.
func (s *Steps) Place(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	// A cancel that the workflow has not heard of yet (rule 18); the mark is only a
	// short cut, so its absence, or an emptied ledger, changes nothing.
	if gone, err := s.Ledger.Cancelled(ctx, in.Request.Plan.Attempt.Handoff); err == nil && gone {
		return steps.Output{}, handoff.Errorf(handoff.CodeCancelled, "the client cancelled")
	}
	p, d, route, err := s.Placer.Place(ctx, in.Request, in.Exclude)
	if err != nil {
		return steps.Output{}, err
	}
	next := in.Request.Plan
	next.P, next.D, next.Reader = p, d, in.Reader.Reader
	next.Attempt.Epoch++
	if next.Attempt.Nonce, err = NewNonce(); err != nil {
		return steps.Output{}, err
	}
	if err := next.Validate(); err != nil {
		return steps.Output{}, err
	}
	if err := s.Placer.Begin(next, in.Request.PromptTokens); err != nil {
		return steps.Output{}, err
	}
	return steps.Output{Plan: &next, Route: &route}, nil
}

// NewNonce draws the nonce of an attempt; never zero.
func NewNonce() (handoff.Nonce, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, handoff.Errorf(handoff.CodeUnavailable, "random source: %v", err)
	}
	return handoff.Nonce(binary.LittleEndian.Uint64(b[:]) | 1), nil
}

// Watch asks whether TD still holds the committed target.
//
// Idempotent: it only looks.
func (s *Steps) Watch(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	r := in.Request
	m, err := s.Movers.Mover(r.Route.D.Control)
	if err != nil {
		return steps.Output{}, err
	}
	// An undo never takes a commit back (rule 4), and answers the present state.
	ans, err := m.Undo(ctx, r.Plan, operation(in, steps.StepWatch), client.Sides{Target: true})
	if err != nil {
		return steps.Output{}, err
	}
	out := steps.Output{State: ans.Target.String(), Verdict: handoff.VerdictOver, Engine: string(r.Plan.D.Engine)}
	if ans.Target == handoff.TargetCommitted {
		out.Verdict = handoff.VerdictCommitted
	}
	return out, nil
}
