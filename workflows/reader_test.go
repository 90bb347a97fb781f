package workflows_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// deaf makes D silent after a commit whose answer is lost, and P unable to prove
// anything: only the reader can.
func deaf(t *testing.T) *flow {
	f := newFlow(t)
	f.stream = func(handoff.Plan) { f.w.Silence("d0", true) }
	f.faults = at(call{handoff.StepCommit, 1, -1}, fault{code: handoff.CodeUnavailable, done: true})
	return f
}

func TestAReaderThatGaveUpIsProofEnough(t *testing.T) {
	f := deaf(t)
	f.stream = func(p handoff.Plan) {
		f.w.Silence("d0", true)
		f.stream = f.whole
	}
	out, err := f.run()
	if err != nil || out.Attempt.Epoch != 2 || !out.Committed {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	if !f.did(handoff.StepAskReader, 1) {
		t.Error("nobody asked the reader")
	}
	f.w.Silence("d0", false)
	if len(out.Parked) == 0 {
		t.Error("the silent D's undo is not parked")
	}
	f.w.Pass(2 * f.in.Lease)
	f.clean()
}

func TestAnAttemptBeingDeliveredGoesOn(t *testing.T) {
	f := deaf(t)
	f.stream = func(p handoff.Plan) {
		f.deliver(p)
		f.w.Silence("d0", true)
	}
	f.faults = func(c call) fault {
		if c.step == steps.StepWatch { // the stream's end comes while it decodes
			f.w.Silence("d0", false)
			g := f.gate("gate-0")
			f.w.Finish("d0", f.in.Plan.Attempt)
			f.report(g, steps.Ended{Attempt: f.in.Plan.Attempt, Finish: "stop", Usage: steps.Usage{Completion: 5}})
		}
		return at(call{handoff.StepCommit, 1, -1}, fault{code: handoff.CodeUnavailable, done: true})(c)
	}
	out, err := f.run()
	if err != nil || out.Attempt.Epoch != 1 || out.Finish != "stop" || f.did(handoff.StepPlace, 1) {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.safe()
}

func TestASilentReaderProvesNothing(t *testing.T) {
	f := deaf(t)
	f.stream = func(handoff.Plan) {
		f.w.Silence("d0", true)
		f.gate("gate-0").silent = true
	}
	out, err := f.run()
	if err != nil || !out.Sticks() || out.Code != "outcome_unknown" || f.did(handoff.StepPlace, 1) {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.safe()
}

// gone leaves nobody who could tell what became of epoch 1; what comes later
// happens while that is waited out.
func gone(t *testing.T, later func(*flow)) *flow {
	f := deaf(t)
	f.stream = func(handoff.Plan) {
		f.w.Silence("d0", true)
		f.gate("gate-0").silent = true
		f.stream = f.whole
	}
	f.prepare = func(env *testsuite.TestWorkflowEnvironment) {
		env.RegisterDelayedCallback(func() { later(f) }, 20*time.Second)
	}
	return f
}

func TestAClientThatComesAgainWhenNobodyCanTellIsAnswered(t *testing.T) {
	f := gone(t, func(f *flow) {
		f.env.SignalWorkflow(steps.SignalReattach, steps.ReaderAt{Reader: f.gate("gate-1").reader, Address: "gate-1"})
	})
	out, err := f.run()
	if err != nil || out.Code != "" || out.Attempt.Epoch != 2 || out.Decode == "d0" {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	if d := f.gate("gate-1").delivered; len(d) != 1 || d[0].Epoch != 2 {
		t.Errorf("delivered: %v", d)
	}
	f.w.Silence("d0", false)
	f.w.Pass(2 * f.in.Lease)
	f.clean()
}

func TestAClientThatLeavesEndsTheWaitForAnotherReader(t *testing.T) {
	f := gone(t, func(f *flow) { f.env.CancelWorkflow() })
	if out, _ := f.run(); out.Code != "cancelled" || f.did(handoff.StepPlace, 1) {
		t.Fatalf("outcome %+v; calls %v", out, f.names())
	}
	f.safe()
}

// A gateway's next life answers: the connections of the one before ended with it.
func TestAHandoffThatNobodyCanComeBackForEndsWithItsReader(t *testing.T) {
	for _, nameless := range []bool{true, false} {
		f := newFlow(t)
		f.remote, f.in.Nameless = true, nameless
		f.gate("gate-0").reader.Incarnation++
		f.stream = f.nobody
		f.faults = func(c call) fault {
			if c.step == steps.StepWatch {
				f.w.Pass(2 * f.in.Lease) // nobody renewed: the decode's lease ends
			}
			return fault{}
		}
		out, _ := f.run()
		if want := map[bool]string{true: "gone", false: "stream_broken"}[nameless]; out.Code != want || f.did(steps.StepWatch, 1) == nameless {
			t.Errorf("nameless %t: %+v, want %s; calls %v", nameless, out, want, f.names())
		}
		f.clean()
	}
}

func TestNobodyIsWaitedForWhoHasNothingToComeBackWith(t *testing.T) {
	f := gone(t, func(f *flow) {
		var st steps.State
		if v, err := f.env.QueryWorkflow(steps.QueryState); err != nil || v.Get(&st) != nil || st.Outcome == nil {
			t.Errorf("it waits: %+v, %v", st.Phase, err)
		}
	})
	f.in.Nameless = true
	out, err := f.run()
	if err != nil || !out.Sticks() || out.Code != "outcome_unknown" || f.did(handoff.StepPlace, 1) {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.safe()
}

func TestAReaderOfAnotherLifeProvesNothing(t *testing.T) {
	f := deaf(t)
	f.stream = func(handoff.Plan) {
		f.w.Silence("d0", true)
		f.gate("gate-0").reader.Incarnation++
	}
	out, err := f.run()
	if err != nil || !out.Sticks() || out.Code != "outcome_unknown" {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.safe()
}

func TestAStreamLostBeforeItsFirstTokenIsPlannedAnew(t *testing.T) {
	f := newFlow(t)
	f.stream = f.lostOnce
	out, err := f.run()
	if err != nil || out.Attempt.Epoch != 2 || out.Decode == "d0" {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	if s := f.w.Target("d0", f.in.Plan.Attempt); s != handoff.TargetAborted {
		t.Errorf("the superseded attempt is %s at D: it decodes for nobody", s)
	}
	f.clean()
}

func TestAStreamBrokenAfterItsFirstTokenIsNeverPlannedAnew(t *testing.T) {
	f := newFlow(t)
	f.stream = f.broken
	out, err := f.run()
	if err != nil || !out.Committed || out.Code != "stream_broken" || f.did(handoff.StepPlace, 1) {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if k := f.key(); k != "stream_broken" {
		t.Errorf("the key is %s: a committed outcome sticks", k)
	}
	f.clean()
}

func TestAnUnreadDecodeEndsTheHandoff(t *testing.T) {
	f := newFlow(t)
	f.stream = f.nobody
	watched := 0
	f.faults = func(c call) fault {
		if c.step == steps.StepWatch {
			if watched++; watched == 3 {
				f.w.Pass(2 * f.in.Lease) // nobody renewed: the decode's lease ends
			}
		}
		return fault{}
	}
	out, err := f.run()
	if err != nil || out.Code != "stream_broken" || !out.Committed || watched != 4 {
		t.Fatalf("outcome %+v, %v, watched %d", out, err, watched)
	}
	f.clean()
}

func TestALongDecodeIsLookedAtEverMoreRarely(t *testing.T) {
	f := newFlow(t)
	f.stream = f.nobody
	var looks []time.Time
	f.faults = func(c call) fault {
		if c.step != steps.StepWatch {
			return fault{}
		}
		if looks = append(looks, f.env.Now()); looks[len(looks)-1].Sub(looks[0]) > time.Hour {
			f.whole(f.in.Plan)
		}
		return fault{}
	}
	out, err := f.run()
	if err != nil || out.Finish != "stop" {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if n := len(looks); n < 6 || n > 14 {
		t.Errorf("looked at %d times in an hour", n)
	}
	f.clean()
}

func TestAReportOfAnotherReaderOrAttemptDecidesNothing(t *testing.T) {
	f := newFlow(t)
	f.stream = func(p handoff.Plan) {
		other := *f.gate("gate-0")
		other.reader.Number = 7
		f.report(&other, steps.Ended{Attempt: p.Attempt, Code: "engine"})
		old := p.Attempt
		old.Nonce++
		f.report(f.gate("gate-0"), steps.Ended{Attempt: old, Code: "stream_broken", Usage: steps.Usage{Completion: 1}})
		f.whole(p)
	}
	out, err := f.run()
	if err != nil || out.Code != "" || out.Attempt.Epoch != 1 {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.clean()
}

func TestAReattachedReaderIsToldTheAttemptAndEndsIt(t *testing.T) {
	f := newFlow(t)
	second := f.gate("gate-1")
	recorded := false // the task that names a reader is history before that reader hears of it
	f.prepare = func(env *testsuite.TestWorkflowEnvironment) {
		env.SetOnActivityStartedListener(func(i *activity.Info, _ context.Context, _ converter.EncodedValues) {
			recorded = recorded || i.ActivityType.Name == string(steps.StepTell)
		})
	}
	f.stream = func(p handoff.Plan) {
		f.gate("gate-0").silent = true // its gateway died
		f.env.SignalWorkflow(steps.SignalReattach, steps.ReaderAt{Reader: second.reader, Address: "gate-1"})
	}
	f.faults = func(c call) fault {
		if c.step == steps.StepWatch && len(second.planned) > 0 && len(second.delivered) == 0 {
			p := f.in.Plan
			p.Reader = second.reader
			f.whole(p)
		}
		return fault{}
	}
	out, err := f.run()
	if err != nil || out.Code != "" || out.Attempt != f.in.Plan.Attempt {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	if !slices.Equal(second.planned, []handoff.Attempt{f.in.Plan.Attempt}) || !recorded {
		t.Errorf("the new reader was told %v, by an activity of its own: %t", second.planned, recorded)
	}
	f.clean()
}

func TestAnOlderReattachChangesNothing(t *testing.T) {
	f := newFlow(t)
	f.stream = func(p handoff.Plan) {
		f.env.SignalWorkflow(steps.SignalReattach, steps.ReaderAt{Reader: handoff.Reader{Process: "late", Incarnation: 1, Number: 1}, Address: "late"})
		f.whole(p)
	}
	if out, err := f.run(); err != nil || f.did(steps.StepTell, 1) {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	f.clean()
}

func TestAnEarlierReadersGiveUpDoesNotSpeakForItsSuccessor(t *testing.T) {
	f := newFlow(t)
	first, second := f.gate("gate-0"), f.gate("gate-1")
	f.stream = func(p handoff.Plan) {
		// The first reader gives up and reports; before that is read, the second
		// is named and begins to deliver.
		f.env.SignalWorkflow(steps.SignalReattach, steps.ReaderAt{Reader: second.reader, Address: "gate-1"})
		f.report(first, steps.Ended{Attempt: p.Attempt, Code: "engine"})
		p.Reader = second.reader
		f.whole(p)
	}
	out, err := f.run()
	if err != nil || out.Attempt.Epoch != 1 || out.Code != "" {
		t.Fatalf("outcome %+v, %v; calls %v", out, err, f.names())
	}
	f.clean()
}

func TestTheStateNamesReaderPlanAndRoute(t *testing.T) {
	f := newFlow(t)
	var st steps.State
	f.prepare = func(env *testsuite.TestWorkflowEnvironment) {
		f.stream = func(p handoff.Plan) {
			env.RegisterDelayedCallback(func() {
				v, err := env.QueryWorkflow(steps.QueryState)
				if err != nil || v.Get(&st) != nil {
					t.Errorf("query: %v", err)
				}
				f.whole(p)
			}, time.Second)
		}
	}
	if _, err := f.run(); err != nil {
		t.Fatal(err)
	}
	if st.Plan != f.in.Plan || st.Reader != f.in.Plan.Reader || st.Address != "gate-0" || st.Route.D != f.in.Route.D || st.Phase != handoff.PhaseDecoding {
		t.Errorf("state %+v", st)
	}
}

func TestAReaderNamedAfterTheEndIsToldOfIt(t *testing.T) {
	f := newFlow(t)
	second := f.gate("gate-1")
	f.faults = func(c call) fault {
		switch {
		case c.step == steps.StepSettle:
			f.env.SignalWorkflow(steps.SignalReattach, steps.ReaderAt{Reader: second.reader, Address: "gate-1"})
		case c.step == handoff.StepTransfer:
			return fault{code: handoff.CodeInvalid}
		}
		return fault{}
	}
	if out, err := f.run(); err == nil || out.Code != "invalid" {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	if !slices.Contains(second.ended, "invalid") || len(second.planned) > 0 {
		t.Errorf("the new reader was told %v, planned %v", second.ended, second.planned)
	}
	f.clean()
}
