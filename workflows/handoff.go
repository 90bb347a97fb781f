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
// be used again; a committed one, or one that may be, ends *completed* whatever
// became of the stream, because such outcomes stick (S13).
func Handoff(ctx workflow.Context, in steps.Input) (steps.Outcome, error) {
	r := newRun(ctx, in)
	r.listen(ctx)
	for {
		r.mind()
		for _, cmd := range r.coord.Commands() {
			r.start(cmd)
		}
		r.decided()
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
func (r *run) start(cmd handoff.Command) {
	base := r.undo
	if forward(cmd.Step) {
		base = r.attempt
	}
	r.beside(base, func(ctx workflow.Context) { r.apply(r.execute(ctx, cmd)) })
}

// beside runs fn beside everything else; the run does not end before it.
func (r *run) beside(ctx workflow.Context, fn func(workflow.Context)) {
	r.running++
	workflow.Go(ctx, func(ctx workflow.Context) {
		fn(ctx)
		r.running--
		r.changed = true
	})
}

// apply steps the coordinator and follows what the step means for the run.
func (r *run) apply(res handoff.Result) {
	before := r.coord.Plan().Attempt.Epoch
	r.coord.Step(res)
	switch {
	case r.coord.Plan().Attempt.Epoch != before:
		r.replan()
	case !r.undecided() && r.coord.Phase() != handoff.PhaseDecoding:
		r.stop() // the attempt is lost or the outcome decided: what runs for it may end
	}
}

// undecided says that the present attempt may still go on by itself.
func (r *run) undecided() bool {
	p := r.coord.Phase()
	return p == handoff.PhaseMoving || p == handoff.PhaseCommitting
}

// forward steps bring an attempt towards its commit and end with it; all others
// run to their end whatever becomes of the attempt.
func forward(s handoff.Step) bool {
	switch s {
	case handoff.StepReserve, handoff.StepPrefill, handoff.StepTransfer, handoff.StepCommit:
		return true
	}
	return false
}

func isUndo(s handoff.Step) bool {
	return s == handoff.StepUndoTransfer || s == handoff.StepUndoPrefill || s == handoff.StepUndoReserve
}
