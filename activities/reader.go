package activities

import (
	"context"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// AskReader asks the reader that history names to give the attempt up (rule
// 5c). Silence, refusal and another incarnation prove nothing.
//
// Idempotent: the reader records before it answers, for good. Undo: none.
func (s *Steps) AskReader(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	out := steps.Output{Reader: &in.Reader.Reader, Engine: in.Reader.Reader.Process}
	given, err := s.Readers.GiveUp(ctx, in.Reader, in.Request.Plan.Attempt)
	switch {
	case err != nil && handoff.CodeOf(err).Advice() == handoff.RetrySame:
		return out, err
	case err != nil:
		out.Verdict = handoff.VerdictUnknown
	case given:
		out.Verdict = handoff.VerdictClosed
	default:
		out.Verdict = handoff.VerdictCommitted
	}
	return out, nil
}

// Tell names the newest planned attempt to the reader that history names now.
//
// Idempotent: the reader keeps the newest attempt. Undo: none needed.
func (s *Steps) Tell(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	return steps.Output{}, s.Readers.Planned(ctx, in.Reader, in.Request.Plan, in.Request.Route, handoff.Token{})
}

// Settle tells the ledger and the reader how the handoff ended: committed and
// completed outcomes stick, a refusal before commit frees the key (S13).
//
// Idempotent: the first final outcome sticks. Undo: none.
func (s *Steps) Settle(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	o, r := in.Outcome, in.Request
	if o == nil {
		return steps.Output{}, handoff.Errorf(handoff.CodeInvalid, "settle without an outcome")
	}
	if err := s.settleKey(ctx, r, o); err != nil {
		return steps.Output{}, err
	}
	if o.Code == "" {
		return steps.Output{}, nil
	}
	// A reader that cannot be reached has no client to tell.
	err := s.Readers.Ended(ctx, in.Reader, r.Plan.Attempt, handoff.ParseCode(o.Code), o.Detail)
	if err != nil {
		return steps.Output{State: "reader not told: " + handoff.CodeOf(err).String()}, nil
	}
	return steps.Output{}, nil
}
