package activities

import (
	"context"

	"github.com/surehand/surehand/activities/ledger"
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
	if in.Token == nil {
		return steps.Output{}, handoff.Errorf(handoff.CodeInvalid, "a reader is told without the token")
	}
	out := steps.Output{Engine: in.Reader.Reader.Process}
	return out, s.Readers.Planned(ctx, in.Reader, in.Request.Plan, in.Request.Route, *in.Token)
}

// End tells the reader that the handoff is over without (more of) a stream.
//
// Idempotent: the reader takes the first end. Undo: none.
func (s *Steps) End(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	o := in.Outcome
	if o == nil {
		return steps.Output{}, handoff.Errorf(handoff.CodeInvalid, "an end without an outcome")
	}
	return steps.Output{}, s.Readers.Ended(ctx, in.Reader, in.Request.Plan.Attempt, handoff.ParseCode(o.Code), o.Detail)
}

// Settle tells the ledger how the handoff of a key ended: committed and
// completed outcomes stick, a refusal before commit frees the key (S13).
//
// Idempotent: the first final outcome sticks. Undo: none.
func (s *Steps) Settle(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	o, r := in.Outcome, in.Request
	switch {
	case o == nil:
		return steps.Output{}, handoff.Errorf(handoff.CodeInvalid, "settle without an outcome")
	case r.Key == "":
		return steps.Output{}, nil
	case !o.Sticks():
		return steps.Output{}, s.Ledger.Unclaim(ctx, r.Tenant, r.Key, r.Plan.Attempt.Handoff)
	}
	outcome := ledger.OutcomeCompleted
	switch {
	case o.Code != "":
		outcome = ledger.Outcome(o.Code)
	case r.Record == steps.RecordHandoff && o.Finish == "":
		outcome = ledger.OutcomeCommitted // the stream's end is its reader's to record
	}
	return steps.Output{}, s.Ledger.Settle(ctx, ledger.SettleRequest{Tenant: r.Tenant, Key: r.Key, Body: r.Plan.BodyDigest,
		Handoff: r.Plan.Attempt.Handoff, Outcome: outcome, Window: r.Window})
}
