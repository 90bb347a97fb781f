// Package workflows decides when each step of a handoff runs. It is
// deterministic: the protocol's decisions are contracts/handoff.Coordinator's,
// this package only executes its commands and feeds the results back.
package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Handoff is one request: reserve on D, prefill on P, transfer, commit, and
// their undo. It ends with the stream, or at the commit (steps.RecordHandoff).
//
// A run that ends refused before its commit ends *failed*, so that its id may
// be used again; a committed one, or one that may be (a reset one, say), ends
// *completed* whatever became of the stream, because such outcomes stick (S13).
func Handoff(ctx workflow.Context, in steps.Input) (steps.Outcome, error) {
	r := newRun(ctx, in)
	r.listen(ctx)
	for {
		r.mind()
		for cmds := r.commands(); len(cmds) > 0; cmds = r.commands() {
			for _, cmd := range cmds {
				r.start(cmd)
			}
		}
		r.decided()
		if r.coord.Ended() && r.running == 0 {
			break
		}
		r.unwatch()
		// Disconnected: a cancel must not keep the undo steps from running (rule 27).
		if err := workflow.Await(r.undo, func() bool { return r.changed || r.called() || r.ready() }); err != nil {
			return steps.Outcome{}, err
		}
		r.changed = false
		r.hear()
		r.goOn()
	}
	defer r.unwatch() // after what finish writes: so it stands in stored histories
	return r.finish(ctx)
}

// commands are the steps to run now: none under a plan that is not recorded yet.
func (r *run) commands() []handoff.Command {
	if r.unrecorded {
		return nil
	}
	return r.coord.Commands()
}

// start runs one command beside the others; its result steps the coordinator.
func (r *run) start(cmd handoff.Command) {
	if cmd.Step == handoff.StepAwaitReader {
		r.awaitReader(cmd)
		return
	}
	ctx := r.undo
	if forward(cmd.Step) {
		ctx = r.attempt
	}
	in := r.input(cmd)
	r.beside(r.begin(ctx, cmd, in), func(done workflow.Future) { r.apply(r.result(ctx, cmd, in, done)) })
}

// waiting is what a run goes on with once a future is ready.
type waiting struct {
	future workflow.Future
	then   func(workflow.Future)
}

// when goes on with then once f is ready. The run's one coroutine does that for
// all of them: the dispatcher walks every coroutine at every event, and each
// visit costs two switches of goroutines and a timer.
func (r *run) when(f workflow.Future, then func(workflow.Future)) {
	r.waits = append(r.waits, waiting{f, then})
}

// beside is when, and the run does not end before it.
func (r *run) beside(f workflow.Future, then func(workflow.Future)) {
	r.running++
	r.when(f, func(f workflow.Future) {
		then(f)
		r.running--
	})
}

func (w waiting) isReady() bool { return w.future.IsReady() }

func (r *run) ready() bool { return slices.ContainsFunc(r.waits, waiting.isReady) }

// goOn takes up what became ready, in the order in which it was begun.
func (r *run) goOn() {
	var now, later []waiting
	for _, w := range r.waits {
		if w.isReady() {
			now = append(now, w)
		} else {
			later = append(later, w)
		}
	}
	r.waits = later
	for _, w := range now {
		w.then(w.future)
	}
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
