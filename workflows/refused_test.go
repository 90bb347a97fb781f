package workflows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

var movingSteps = []handoff.Step{handoff.StepReserve, handoff.StepPrefill, handoff.StepTransfer, handoff.StepCommit}

func TestARefusedStepIsFencedAndAnotherEpochPlanned(t *testing.T) {
	for _, step := range movingSteps {
		t.Run(string(step), func(t *testing.T) {
			f := newFlow(t)
			f.faults = at(call{step, 1, -1}, fault{code: handoff.CodeCapacity})
			out, err := f.run()
			if err != nil || !out.Committed || out.Attempt.Epoch != 2 {
				t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
			}
			if avoided := out.Decode == "d0" && out.Prefill == "p0"; avoided {
				t.Errorf("the next epoch went to the same engines: %s, %s", out.Prefill, out.Decode)
			}
			names := f.names()
			placed := slices.Index(names, "place/e1#0")
			for _, s := range movingSteps {
				if i := slices.Index(names, call{s, 2, 0}.String()); i >= 0 && i < placed {
					t.Errorf("%s of epoch 2 ran before its plan was history", s)
				}
			}
			closed := slices.IndexFunc(names, func(n string) bool { return n == "undo-transfer/e1#0" || n == "undo-prefill/e1#0" })
			if closed < 0 || closed > placed { // either daemon's word is proof
				t.Errorf("epoch 2 was planned before epoch 1 was closed: %v", names)
			}
			f.clean()
		})
	}
}

func TestARefusalThatNothingCanChangeEndsTheHandoff(t *testing.T) {
	for _, code := range []handoff.Code{handoff.CodeInvalid, handoff.CodeDenied, handoff.CodeInternal} {
		for _, step := range movingSteps {
			t.Run(code.String()+" in "+string(step), func(t *testing.T) {
				f := newFlow(t)
				f.faults = at(call{step, 1, -1}, fault{code: code})
				out, err := f.run()
				if err == nil || out.Code != code.String() || out.Committed || f.did(handoff.StepPlace, 1) {
					t.Fatalf("outcome %+v, %v", out, err)
				}
				if k := f.key(); k != "free" {
					t.Errorf("a refusal before the commit sticks: the key is %s", k)
				}
				if g := f.gate("gate-0"); !slices.Contains(g.ended, code.String()) {
					t.Errorf("the reader was told %v", g.ended)
				}
				f.clean()
			})
		}
	}
}

func TestAnUnknownResultIsAskedAgainUnderTheSameOperation(t *testing.T) {
	for _, step := range movingSteps {
		for _, done := range []bool{false, true} {
			f := newFlow(t)
			f.faults = at(call{step, 1, 0}, fault{code: handoff.CodeUnavailable, done: done})
			out, err := f.run()
			if err != nil || out.Attempt.Epoch != 1 {
				t.Fatalf("%s done=%v: outcome %+v, %v; calls %v", step, done, out, err, f.names())
			}
			f.clean()
		}
	}
}

func TestAfterThreeEpochsTheHandoffGivesUp(t *testing.T) {
	f := newFlow(t)
	f.faults = func(c call) fault {
		if c.step == handoff.StepTransfer {
			return fault{code: handoff.CodeIntegrity}
		}
		return fault{}
	}
	out, err := f.run()
	if err == nil || out.Code != "integrity" && out.Code != "capacity" || out.Attempt.Epoch > 3 {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.clean()
}

func TestWithoutAnotherPlacementTheFirstFailureIsToldWithIt(t *testing.T) {
	f := newFlow(t)
	f.faults = func(c call) fault {
		switch c.step {
		case handoff.StepTransfer:
			return fault{code: handoff.CodeEngine}
		case handoff.StepPlace:
			return fault{code: handoff.CodeCapacity}
		}
		return fault{}
	}
	out, err := f.run()
	if err == nil || out.Code != "engine" || out.Attempt.Epoch != 1 {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.clean()
}

func TestACommitOfUnknownResultIsAdoptedWhenTDSaysSo(t *testing.T) {
	f := newFlow(t)
	f.faults = at(call{handoff.StepCommit, 1, -1}, fault{code: handoff.CodeUnavailable, done: true})
	f.stream = f.nobody
	var held handoff.Plan
	f.w.OnCommit(func(p handoff.Plan) { held = p })
	out, err := f.runUntilAdopted(&held)
	if err != nil || !out.Committed || out.Attempt.Epoch != 1 || f.did(handoff.StepPlace, 1) {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.clean()
}

// runUntilAdopted lets the stream begin only when the fence has asked TD.
func (f *flow) runUntilAdopted(p *handoff.Plan) (steps.Outcome, error) {
	inner := f.faults
	f.faults = func(c call) fault {
		if c.step == steps.StepWatch {
			f.whole(*p)
		}
		return inner(c)
	}
	return f.run()
}

func TestACommitThatNeverArrivedIsClosedAndAnotherEpochPlanned(t *testing.T) {
	f := newFlow(t)
	f.faults = at(call{handoff.StepCommit, 1, -1}, fault{code: handoff.CodeUnavailable})
	out, err := f.run()
	if err != nil || out.Attempt.Epoch != 2 || !out.Committed {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.clean()
}

func TestAResetRunClosesAndEndsTyped(t *testing.T) {
	f := newFlow(t)
	f.reset = true
	out, err := f.run()
	if err != nil || out.Code != "reset" || out.Committed || f.did(handoff.StepCommit, 1) {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if k := f.key(); k != "reset" { // a later epoch, which this run's history forgot, may have delivered
		t.Errorf("the key is %s", k)
	}
	if c := f.w.Calls(); slices.ContainsFunc(c, func(s string) bool { return s[:4] == "rese" || s[:4] == "pref" }) {
		t.Errorf("a reset run acted: %v", c)
	}
	f.clean()
}

func TestTheDeadlineOfTheFirstTokenIsOneOverAllEpochs(t *testing.T) {
	f := newFlow(t)
	f.in.Deadline = 2 * time.Second
	f.faults = func(c call) fault {
		if c.step == handoff.StepPrefill {
			return fault{code: handoff.CodeUnavailable} // an epoch gives up after 1.5 s
		}
		return fault{}
	}
	out, err := f.run()
	if err == nil || out.Code != "deadline" || out.Attempt.Epoch != 2 {
		t.Fatalf("outcome %+v, %v; calls %d", out, err, len(f.names()))
	}
	f.clean()
}

func TestAnUndoThatNobodyAnswersIsParkedVisibly(t *testing.T) {
	for _, step := range []handoff.Step{handoff.StepUndoTransfer, handoff.StepUndoPrefill, handoff.StepUndoReserve} {
		f := newFlow(t)
		f.faults = func(c call) fault {
			switch c.step {
			case handoff.StepTransfer:
				return fault{code: handoff.CodeInvalid}
			case step:
				return fault{code: handoff.CodeUnavailable}
			}
			return fault{}
		}
		out, err := f.run()
		if err == nil || out.Code != "invalid" {
			t.Fatalf("outcome %+v, %v", out, err)
		}
		if len(out.Parked) != 1 {
			t.Errorf("%s: parked %v", step, out.Parked)
		}
		f.w.Pass(2 * f.in.Lease) // what an undo could not reach ends with its lease
		if left := f.w.Left(); len(left) > 0 {
			t.Errorf("%s: left behind after the leases: %v", step, left)
		}
	}
}

func TestAnUndoThatWasRefusedForGoodIsParkedAtOnce(t *testing.T) {
	f := newFlow(t)
	f.faults = func(c call) fault {
		switch c.step {
		case handoff.StepTransfer:
			return fault{code: handoff.CodeInvalid}
		case handoff.StepUndoReserve:
			return fault{code: handoff.CodeInternal}
		}
		return fault{}
	}
	out, _ := f.run()
	if n := f.tries(handoff.StepUndoReserve, 1); len(out.Parked) != 1 || n != 1 {
		t.Errorf("parked %v after %d tries", out.Parked, n)
	}
}
