package workflows_test

import (
	"slices"
	"testing"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// scenarios are the shapes of a handoff that are unwound: each names every step
// that it takes without a fault of ours.
var scenarios = map[string]func(*flow){
	"whole":  func(*flow) {},
	"long":   func(f *flow) { f.in.Long = true },
	"remote": func(f *flow) { f.remote = true },
	"broken": func(f *flow) { f.stream = f.broken },
	"lost":   func(f *flow) { f.stream = f.lostOnce },
	"replanned": func(f *flow) {
		f.w.Refuse("d0", handoff.StepTransfer, handoff.Errorf(handoff.CodeIntegrity, "bad bytes"))
	},
	"refused": func(f *flow) {
		f.w.Refuse("p0", handoff.StepPrefill, handoff.Errorf(handoff.CodeInvalid, "no such model"))
	},
	"nobody D": func(f *flow) { f.w.Refuse("d0", handoff.StepReserve, handoff.Errorf(handoff.CodeCapacity, "full")) },
	"asked": func(f *flow) { // neither D nor P can prove anything: the reader is asked
		f.w.Refuse("d0", handoff.StepCommit, handoff.Errorf(handoff.CodeUnavailable, "no answer"))
		f.w.Refuse("d0", handoff.StepUndoTransfer, handoff.Errorf(handoff.CodeUnavailable, "no answer"))
	},
	"cancelled": func(f *flow) { f.stream = func(handoff.Plan) { f.env.CancelWorkflow() } },
}

// stepsOf is every call of a scenario run without a fault.
func stepsOf(t *testing.T, prepare func(*flow)) []call {
	f := newFlow(t)
	prepare(f)
	if out, _ := f.run(); len(out.Parked) > 0 {
		f.w.Pass(2 * f.in.Lease)
	}
	f.clean()
	f.mu.Lock()
	defer f.mu.Unlock()
	// What was only asked again for want of an answer is unwound once.
	return slices.DeleteFunc(slices.Clone(f.calls), func(c call) bool { return c.n > 2 })
}

// unwind runs a scenario with one fault and demands that it ends typed, leaves
// nothing but what is parked, and that even that ends with its leases.
func unwind(t *testing.T, prepare func(*flow), c call, bad fault) {
	failed := t.Failed()
	f := newFlow(t)
	prepare(f)
	f.faults = at(c, bad)
	out, err := f.run()
	if err == nil && !out.Sticks() || err != nil && out.Code == "" {
		t.Errorf("ended neither whole nor typed: %+v, %v", out, err)
	}
	if v := f.w.Visible(); len(v) > 0 && len(out.Parked) == 0 {
		t.Errorf("still visible: %v", v)
	}
	if len(out.Parked) == 0 {
		f.clean()
	}
	f.w.Pass(2 * f.in.Lease)
	f.clean()
	if t.Failed() && !failed {
		t.Logf("%s %+v: %+v, %v; calls %v", c, bad, out, err, f.names())
	}
}

func TestFailAtEveryStep(t *testing.T) {
	codes := []handoff.Code{handoff.CodeUnavailable, handoff.CodeCapacity, handoff.CodeInvalid, handoff.CodeInternal}
	for name, prepare := range scenarios {
		t.Run(name, func(t *testing.T) {
			for _, c := range stepsOf(t, prepare) {
				for _, code := range codes {
					for _, done := range []bool{false, true} {
						for _, n := range []int{c.n, -1} {
							unwind(t, prepare, call{c.step, c.epoch, n}, fault{code: code, done: done})
						}
					}
				}
			}
		})
	}
}

func TestRepeatEveryStep(t *testing.T) {
	for name, prepare := range scenarios {
		t.Run(name, func(t *testing.T) {
			for _, c := range stepsOf(t, prepare) {
				unwind(t, prepare, c, fault{twice: true})
			}
		})
	}
}

func TestRepeatEveryUndo(t *testing.T) {
	for name, prepare := range scenarios {
		t.Run(name, func(t *testing.T) {
			for _, c := range stepsOf(t, prepare) {
				if slices.Contains(undoSteps, c.step) || c.step == steps.StepSettle || c.step == steps.StepEnd {
					unwind(t, prepare, call{c.step, c.epoch, -1}, fault{twice: true})
					unwind(t, prepare, c, fault{code: handoff.CodeUnavailable, done: true}) // done, asked again
				}
			}
		})
	}
}

// names collects what a worker is given.
type names struct {
	worker.ActivityRegistry
	all []handoff.Step
}

func (n *names) RegisterActivityWithOptions(_ any, o activity.RegisterOptions) {
	n.all = append(n.all, handoff.Step(o.Name))
}

// The helpers above take their steps from what the scenarios do: an activity
// that is registered and in none of them would be forgotten.
func TestEveryRegisteredStepIsUnwound(t *testing.T) {
	var registered names
	newFlow(t).steps.Register(&registered)
	if len(registered.all) < 13 {
		t.Errorf("%d steps are registered", len(registered.all))
	}
	unwound := map[handoff.Step]bool{}
	for _, prepare := range scenarios {
		for _, c := range stepsOf(t, prepare) {
			unwound[c.step] = true
		}
	}
	for _, step := range registered.all {
		if undo := steps.Undo[step]; undo == "" {
			t.Errorf("%s has no undo and does not say why", step)
		} else if !unwound[step] && undo != "none: it only looks" {
			t.Errorf("%s is registered and no scenario takes it", step)
		}
	}
}
