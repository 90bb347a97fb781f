package workflows_test

import (
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

var undoSteps = []handoff.Step{handoff.StepUndoTransfer, handoff.StepUndoPrefill, handoff.StepUndoReserve}

// undone demands that every undo of the epoch ran, newest first.
func (f *flow) undone(e handoff.Epoch) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var order []handoff.Step
	for _, c := range f.calls {
		if c.epoch == e && slices.Contains(undoSteps, c.step) && !slices.Contains(order, c.step) {
			order = append(order, c.step)
		}
	}
	if len(order) != len(undoSteps) {
		f.t.Errorf("undone of epoch %d: %v", e, order)
	}
}

func TestACancelWhileMovingUndoesEverything(t *testing.T) {
	for _, step := range []handoff.Step{handoff.StepReserve, handoff.StepPrefill, world.StepCompute, handoff.StepTransfer, handoff.StepCommit} {
		t.Run(string(step), func(t *testing.T) {
			f := newFlow(t)
			reached, release := f.w.Hold(step)
			defer release()
			go func() {
				<-reached
				f.env.CancelWorkflow()
			}()
			out, err := f.run()
			if !temporal.IsCanceledError(err) || out.Code != "cancelled" || out.Committed {
				t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
			}
			f.undone(1)
			if k := f.key(); k != "free" {
				t.Errorf("the key is %s", k)
			}
			release()
			f.clean()
		})
	}
}

func TestACancelBetweenCommitAndItsAnswerTellsTheTruth(t *testing.T) {
	f := newFlow(t)
	f.stream = func(handoff.Plan) { f.env.CancelWorkflow() } // TD has committed, nobody knows yet
	out, err := f.run()
	if err != nil || out.Code != "cancelled" || !out.Committed {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if k := f.key(); k != "cancelled" {
		t.Errorf("the key is %s: a committed outcome sticks", k)
	}
	f.clean()
}

// The same, and D is silent from then on: its yes may have let a reader deliver.
func TestACancelWhoseAttemptNobodyProvesClosedSpendsTheKey(t *testing.T) {
	f := newFlow(t)
	f.faults = at(call{handoff.StepCommit, 1, -1}, fault{code: handoff.CodeUnavailable, done: true})
	f.stream = func(handoff.Plan) {
		f.w.Silence("d0", true)
		f.env.CancelWorkflow()
	}
	out, err := f.run()
	if err != nil || out.Code != "cancelled" || out.Committed || !out.Unproven {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if k := f.key(); k != "cancelled" {
		t.Errorf("the key is %s, though tokens of it may be at its client", k)
	}
	f.w.Silence("d0", false)
	f.w.Pass(2 * f.in.Lease)
	f.clean()
}

func TestACancelWhileDecodingReleasesTheCommittedTarget(t *testing.T) {
	f := newFlow(t)
	f.stream = f.nobody
	f.prepare = func(env *testsuite.TestWorkflowEnvironment) {
		env.RegisterDelayedCallback(env.CancelWorkflow, 10*time.Second)
	}
	out, err := f.run()
	if err != nil || out.Code != "cancelled" || !out.Committed {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if s := f.w.Target("d0", f.in.Plan.Attempt); s != handoff.TargetAborted {
		t.Errorf("the target is %s", s)
	}
	f.undone(1)
	f.clean()
}

func TestACancelWhileFencingOrPlacingPlansNothing(t *testing.T) {
	for _, during := range [][]handoff.Step{{handoff.StepUndoTransfer, handoff.StepUndoPrefill}, {handoff.StepPlace}} {
		t.Run(string(during[0]), func(t *testing.T) {
			f := newFlow(t)
			f.faults = func(c call) fault {
				if slices.Contains(during, c.step) { // before the answer that would go on
					f.env.CancelWorkflow()
				}
				if c.step == handoff.StepTransfer {
					return fault{code: handoff.CodeEngine}
				}
				return fault{}
			}
			out, err := f.run()
			if err == nil || out.Code != "cancelled" || f.did(handoff.StepReserve, 2) {
				t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
			}
			f.clean()
		})
	}
}

func TestACancelInTheSecondEpochUndoesBoth(t *testing.T) {
	f := newFlow(t)
	f.faults = func(c call) fault {
		if c.step == handoff.StepTransfer && c.epoch == 1 {
			return fault{code: handoff.CodeEngine}
		}
		if c.step == handoff.StepCommit {
			f.env.CancelWorkflow()
			return fault{code: handoff.CodeUnavailable}
		}
		return fault{}
	}
	out, err := f.run()
	if err == nil || out.Code != "cancelled" {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.undone(1)
	f.undone(2)
	f.clean()
}

func TestACancelAfterTheEndChangesNothing(t *testing.T) {
	f := newFlow(t)
	f.faults = func(c call) fault {
		if c.step == steps.StepSettle {
			f.env.CancelWorkflow()
		}
		return fault{}
	}
	if out, err := f.run(); err != nil || out.Code != "" {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.clean()
}
