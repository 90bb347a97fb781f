package activities

import (
	"context"
	"errors"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/transferd/client"
)

// errStopped is why what runs for an attempt here ends before its time.
func errStopped(in steps.StepInput) error {
	if in.Hard {
		return handoff.Errorf(handoff.CodeCancelled, "the attempt is released")
	}
	return handoff.Errorf(handoff.CodeClosed, "the attempt is being undone")
}

// UndoTransfer closes the target at TD, or with Hard ends it even after its
// commit, and tells what TD's table says (rule 5a).
//
// Idempotent: closed and aborted are final; an unknown attempt gets a tombstone
// (rule 7). It is itself an undo.
func (s *Steps) UndoTransfer(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	s.Attempts.Stop(in.Request.Plan.Attempt, errStopped(in))
	ans, err := s.closeAt(ctx, in.Request.Route.D.Control, in, client.Sides{Target: true}, handoff.StepUndoTransfer)
	out := steps.Output{Engine: string(in.Request.Plan.D.Engine), State: ans.Target.String()}
	switch {
	case handoff.CodeOf(err) == handoff.CodeStaleIncarnation:
		out.Verdict = handoff.VerdictUnknown // another life proves nothing (M6b)
		return out, nil
	case err != nil:
		return out, err
	}
	out.Verdict = handoff.TargetVerdict(handoff.TargetAnswer{State: ans.Target})
	if out.Verdict == handoff.VerdictUnknown || in.Hard && out.Verdict == handoff.VerdictCommitted {
		return out, handoff.Errorf(handoff.CodeInternal, "undo left the target %s", ans.Target)
	}
	return out, nil
}

// UndoPrefill closes the source at TP; P stops and frees once drained. Its
// answer proves the attempt closed only if it was never validated (rule 5b).
//
// Idempotent: closed is final; an unknown attempt gets a tombstone (rule 7).
func (s *Steps) UndoPrefill(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	s.Attempts.Stop(in.Request.Plan.Attempt, errStopped(in))
	ans, err := s.closeAt(ctx, in.Request.Route.P.Control, in, client.Sides{Source: true}, handoff.StepUndoPrefill)
	out := steps.Output{Engine: string(in.Request.Plan.P.Engine), State: ans.Source.String()}
	switch {
	case handoff.CodeOf(err) == handoff.CodeStaleIncarnation:
		out.Verdict = handoff.VerdictUnknown
		return out, nil
	case err != nil:
		return out, err
	}
	out.Verdict = handoff.SourceVerdict(handoff.SourceAnswer{State: ans.Source, Validated: ans.Validated})
	if out.Verdict == handoff.VerdictUnknown {
		return out, handoff.Errorf(handoff.CodeInternal, "undo left the source %s", ans.Source)
	}
	return out, nil
}

func (s *Steps) closeAt(ctx context.Context, address string, in steps.StepInput, sides client.Sides, step handoff.Step) (client.CloseAnswer, error) {
	m, err := s.Movers.Mover(address)
	if err != nil {
		return client.CloseAnswer{}, err
	}
	if in.Hard {
		return m.Release(ctx, in.Request.Plan, operation(in, step)+"/release", sides)
	}
	return m.Undo(ctx, in.Request.Plan, operation(in, step), sides)
}

// UndoReserve gives the ledger's promise back and forgets the attempt here.
//
// Idempotent: the ledger is a set (rule 16).
func (s *Steps) UndoReserve(ctx context.Context, in steps.StepInput) (steps.Output, error) {
	out := steps.Output{Engine: string(in.Request.Plan.D.Engine)}
	if err := s.Ledger.Release(ctx, in.Request.Plan.D.Engine, in.Request.Plan.Attempt); err != nil {
		return out, err
	}
	s.Attempts.Forget(in.Request.Plan.Attempt)
	return out, nil
}

// UndoHeadStart closes what a gateway issued before its start was refused, under
// its own nonce only (rule 6) and softly, because it cannot record. It tries
// everything and gives every failure; leases end what could not be reached.
func (s *Steps) UndoHeadStart(ctx context.Context, in steps.Input) error {
	_, err := s.undoAll(ctx, steps.StepInput{Request: in})
	return err
}

// ReleaseNow is the client's cancel, sent directly (rule 18): everything planned
// is released at once, newest first, whatever the workflow does later.
func (s *Steps) ReleaseNow(ctx context.Context, in steps.Input) (beforeCommit bool, err error) {
	v, err := s.undoAll(ctx, steps.StepInput{Request: in, Hard: true})
	return v == handoff.VerdictClosed, err
}

// undoAll runs every undo side by side, so that a silent D keeps neither P nor
// the ledger waiting, and gives TD's verdict and every failure.
func (s *Steps) undoAll(ctx context.Context, in steps.StepInput) (v handoff.Verdict, err error) {
	var errs [3]error
	var wg sync.WaitGroup
	wg.Go(func() {
		out, err := s.UndoTransfer(ctx, in)
		v, errs[0] = out.Verdict, err
	})
	wg.Go(func() { _, errs[1] = s.UndoPrefill(ctx, in) })
	wg.Go(func() { _, errs[2] = s.UndoReserve(ctx, in) })
	wg.Wait()
	return v, errors.Join(errs[:]...)
}
