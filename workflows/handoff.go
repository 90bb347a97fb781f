// Package workflows decides when each step of a handoff runs. It is
// deterministic: the protocol's decisions are contracts/handoff.Coordinator's,
// this package only executes its commands and feeds the results back.
package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Handoff is one request: reserve on D, prefill on P, transfer, commit, and
// their undo. It ends with the stream, or at the commit (steps.RecordHandoff).
//
// A run that ends refused before its commit ends *failed*, so that its id may
// be used again; a committed one ends *completed* whatever became of the
// stream, because committed outcomes stick (S13).
func Handoff(ctx workflow.Context, in steps.Input) (steps.Outcome, error) {
	r := newRun(ctx, in)
	r.listen(ctx)
	for {
		for _, cmd := range r.coord.Commands() {
			r.start(ctx, cmd)
		}
		r.decided(ctx)
		if r.coord.Ended() && r.running == 0 {
			break
		}
		r.changed = false
		// Disconnected: a cancel must not keep the undo steps from running (rule 27).
		if err := workflow.Await(r.undo, func() bool { return r.changed }); err != nil {
			return steps.Outcome{}, err
		}
	}
	return r.finish(ctx)
}

// start runs one command beside the others; its result steps the coordinator.
func (r *run) start(ctx workflow.Context, cmd handoff.Command) {
	r.running++
	base := r.attempt
	if isUndo(cmd.Step) {
		base = r.undo
	}
	workflow.Go(base, func(ctx workflow.Context) {
		res := r.execute(ctx, cmd)
		r.running--
		r.changed = true
		r.apply(cmd, res)
	})
}

// apply steps the coordinator and follows what the step means for the run.
func (r *run) apply(cmd handoff.Command, res handoff.Result) {
	before := r.coord.Plan().Attempt.Epoch
	r.coord.Step(res)
	r.loseStream()
	switch phase := r.coord.Phase(); {
	case r.coord.Plan().Attempt.Epoch != before:
		r.replan()
	case phase != handoff.PhaseMoving && phase != handoff.PhaseCommitting && phase != handoff.PhaseDecoding && phase != handoff.PhasePlacing:
		r.stop() // the attempt is lost or the outcome decided: what runs for it may end
	}
}

func isUndo(s handoff.Step) bool {
	switch s {
	case handoff.StepUndoTransfer, handoff.StepUndoPrefill, handoff.StepUndoReserve, handoff.StepAskReader, handoff.StepPlace:
		return true
	}
	return false
}
