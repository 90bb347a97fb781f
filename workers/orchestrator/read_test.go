package orchestrator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

func (f *fleetOf) count(call string) (n int) {
	for _, c := range f.w.Calls() {
		if c == call {
			n++
		}
	}
	return n
}

func TestABrokenConnectionIsTakenUpAtTheNextPosition(t *testing.T) {
	for _, position := range []uint32{0, 3} {
		f := gateways(t, "a")
		f.w.Break("d", position, handoff.Errorf(handoff.CodeUnavailable, "connection reset"))
		if text, last := read(t, f.submit("a", ask("k"))); text != world.Text || last.Err != nil {
			t.Errorf("broken at %d: %q, %+v", position, text, last)
		}
		if n := f.count("decode at d e1"); n != 2 {
			t.Errorf("attached %d times", n)
		}
		f.clean()
	}
}

func TestADecodeThatBreaksAfterItsFirstTokenEndsTyped(t *testing.T) {
	f := gateways(t, "a")
	f.w.Break("d", 2, handoff.Errorf(handoff.CodeEngine, "out of memory"))
	text, last := read(t, f.submit("a", ask("k")))
	if text != world.Text[:2] || last.Err == nil || last.Err.Code != handoff.CodeStreamBroken || !strings.Contains(last.Err.Detail, "position 2") {
		t.Errorf("%q, %+v", text, last)
	}
	f.clean()
	again, last := read(t, f.submit("a", ask("k")))
	if again != text || last.Err == nil {
		t.Errorf("a committed outcome did not stick: %q, %+v", again, last)
	}
}

func TestADecodeLostBeforeItsFirstTokenIsGivenUpAndReported(t *testing.T) {
	f := gateways(t, "a")
	got := make(chan steps.Ended, 1)
	f.temporal.drive = func(r *durableRun) {
		in := steps.StepInput{Request: r.in, Reader: steps.ReaderAt{Reader: r.in.Plan.Reader, Address: "a"}}
		o := f.gate("a")
		if _, err := o.steps.Transfer(t.Context(), in); err != nil {
			t.Error(err)
		}
		if _, err := o.steps.Commit(t.Context(), in); err != nil {
			t.Error(err)
		}
		e := <-r.signals
		got <- e
		// As the workflow does: another epoch, told to the same reader.
		next := in
		next.Request.Plan.Attempt.Epoch, next.Request.Plan.Attempt.Nonce = 2, 77
		next.Request.Plan.D, next.Request.Route = f.w.Seat("d2"), f.w.Route("p", "d2")
		if _, err := o.steps.Transfer(t.Context(), next); err != nil {
			t.Error(err)
		}
		if _, err := o.steps.Commit(t.Context(), next); err != nil {
			t.Error(err)
		}
		<-r.signals
		o.steps.ReleaseNow(t.Context(), in.Request)
		o.steps.UndoReserve(t.Context(), next)
	}
	f.w.Break("d", 0, handoff.Errorf(handoff.CodeAborted, "the lease ended"))
	text, last := read(t, f.submit("a", ask("k")))
	if text != world.Text || last.Err != nil {
		t.Errorf("%q, %+v", text, last)
	}
	e := <-got
	if e.Code != "engine" || e.Attempt.Epoch != 1 || e.Reader.Process != "a" || e.Reader.Number != 1 || e.Usage.Completion != 0 {
		t.Errorf("reported %+v", e)
	}
	f.clean()
}

// A worker that lost the workflow to another may ask, too: what the reader gave
// up then is lost for the other's decode as well, so history hears of it.
func TestWhatAReaderGaveUpWhenAskedIsReportedOnce(t *testing.T) {
	f := gateways(t, "a")
	reports := make(chan steps.Ended, 2)
	f.temporal.drive = func(r *durableRun) {
		in := steps.StepInput{Request: r.in, Reader: steps.ReaderAt{Reader: r.in.Plan.Reader, Address: "a"}}
		o := f.gate("a")
		if _, err := o.steps.Transfer(t.Context(), in); err != nil {
			t.Error(err)
		}
		for range 2 {
			if given, err := o.GiveUp(t.Context(), r.in.Plan.Reader, r.in.Plan.Attempt); err != nil || !given {
				t.Errorf("%v, %v", given, err)
			}
		}
		reports <- <-r.signals
		next := in
		next.Request.Plan.Attempt.Epoch, next.Request.Plan.Attempt.Nonce = 2, 77
		next.Request.Plan.D, next.Request.Route = f.w.Seat("d2"), f.w.Route("p", "d2")
		if _, err := o.steps.Transfer(t.Context(), next); err != nil {
			t.Error(err)
		}
		if _, err := o.steps.Commit(t.Context(), next); err != nil {
			t.Error(err)
		}
		reports <- <-r.signals
		o.steps.ReleaseNow(t.Context(), in.Request)
		o.steps.UndoReserve(t.Context(), next)
	}
	if text, last := read(t, f.submit("a", ask("k"))); text != world.Text || last.Err != nil {
		t.Errorf("%q, %+v", text, last)
	}
	if e := <-reports; e.Code != "engine" || e.Attempt.Epoch != 1 || e.Usage.Completion != 0 {
		t.Errorf("reported %+v", e)
	}
	if e := <-reports; e.Code != "" || e.Attempt.Epoch != 2 {
		t.Errorf("reported %+v", e)
	}
	f.clean()
}

func TestTheReaderIsToldAsOftenAsYouLikeAndAttachesOnce(t *testing.T) {
	f := gateways(t, "a")
	reached, release := f.w.Hold(world.StepToken)
	fo := f.submit("a", ask("k"))
	<-reached
	o := f.gate("a")
	r := f.temporal.run("t/" + fo.Handoff())
	for range 3 {
		if err := o.Planned(t.Context(), r.in.Plan, r.in.Route, r.token); err != nil {
			t.Error(err)
		}
	}
	release()
	if text, _ := read(t, fo); text != world.Text || f.count("decode at d e1") != 1 {
		t.Errorf("%q after %d attaches", text, f.count("decode at d e1"))
	}
	if err := o.Planned(t.Context(), r.in.Plan, r.in.Route, r.token); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("told after the end: %v", err)
	}
	f.clean()
}

func TestWhatAReaderAnswersAboutGivingUp(t *testing.T) {
	f := gateways(t, "a")
	o := f.gate("a")
	reached, release := f.w.Hold(world.StepToken)
	fo := f.submit("a", ask("k"))
	<-reached
	plan := f.temporal.run("t/" + fo.Handoff()).in.Plan
	me := plan.Reader
	other := me
	other.Incarnation++
	if _, err := o.GiveUp(t.Context(), other, plan.Attempt); handoff.CodeOf(err) != handoff.CodeStaleIncarnation {
		t.Errorf("another life: %v", err)
	}
	unknown := plan.Attempt
	unknown.Handoff = "unknown"
	if _, err := o.GiveUp(t.Context(), me, unknown); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("an unknown handoff: %v", err)
	}
	later := plan.Attempt
	later.Epoch, later.Nonce = 2, 5
	if given, err := o.GiveUp(t.Context(), me, later); err != nil || !given {
		t.Errorf("an attempt not begun: %v, %v", given, err)
	}
	release()
	if text, last := read(t, fo); text != world.Text {
		t.Errorf("got %q, %+v", text, last)
	}
	for range 2 {
		if given, err := o.GiveUp(t.Context(), me, plan.Attempt); err != nil || given {
			t.Errorf("an attempt delivered: %v, %v", given, err)
		}
	}
	f.clean()
}

func TestRecordedAtTheHandoffTheReaderClosesWhatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*fleetOf)
		code    handoff.Code
		settled string
	}{
		"whole":  {func(*fleetOf) {}, handoff.CodeNone, "completed"},
		"broken": {func(f *fleetOf) { f.w.Break("d", 2, handoff.Errorf(handoff.CodeEngine, "")) }, handoff.CodeStreamBroken, "stream_broken"},
		"lost":   {func(f *fleetOf) { f.w.Break("d", 0, handoff.Errorf(handoff.CodeEngine, "")) }, handoff.CodeEngine, "engine"},
	} {
		t.Run(name, func(t *testing.T) {
			f := gateways(t)
			f.add("a", func(c *Config) { c.Record = steps.RecordHandoff })
			c.prepare(f)
			f.temporal.drive = f.detached
			_, last := read(t, f.submit("a", ask("k")))
			if last.Err == nil && c.code != handoff.CodeNone || last.Err != nil && last.Err.Code != c.code {
				t.Errorf("told %+v", last)
			}
			f.clean()
			if !soon(func() bool { return f.outcome() == c.settled }) {
				t.Errorf("the key is %q", f.outcome())
			}
		})
	}
}

// detached is a run that ends with the commit.
func (f *fleetOf) detached(r *durableRun) {
	o := f.gate("a")
	in := steps.StepInput{Request: r.in, Reader: steps.ReaderAt{Reader: r.in.Plan.Reader, Address: "a"}}
	if _, err := o.steps.Transfer(f.t.Context(), in); err != nil {
		f.t.Error(err)
	}
	_, release := f.w.Hold(world.StepToken) // the stream ends after the run
	defer release()
	if _, err := o.steps.Commit(f.t.Context(), in); err != nil {
		f.t.Error(err)
	}
	in.Outcome = &steps.Outcome{Committed: true}
	if _, err := o.steps.Settle(f.t.Context(), in); err != nil {
		f.t.Error(err)
	}
	f.temporal.end(r, 2)
}

func (f *fleetOf) outcome() string {
	got, err := f.w.Ledger.Claim(f.t.Context(), claimOf("probe"))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(got.Outcome)
}

func TestTheEndOfAStreamIsToldUntilTemporalHasIt(t *testing.T) {
	f := gateways(t, "a")
	refused := map[string]bool{}
	f.temporal.refuse = func(method string) error {
		if (method == steps.UpdateEnded || method == steps.SignalEnded) && !refused[method] {
			refused[method] = true
			return handoff.Errorf(handoff.CodeUnavailable, "restarting")
		}
		return nil
	}
	if text, last := read(t, f.submit("a", ask("k"))); text != world.Text {
		t.Errorf("%q, %+v", text, last)
	}
	f.clean()
	told := slices.DeleteFunc(f.temporal.methods(), func(m string) bool { return m != steps.SignalEnded && m != steps.UpdateEnded })
	if !slices.Equal(told, []string{steps.UpdateEnded, steps.SignalEnded, steps.SignalEnded}) {
		t.Errorf("told by %v: %v, %v", told, f.temporal.methods(), f.w.Calls())
	}
}

func TestAShutdownEndsStreamsTypedAndWaitsForItsOwn(t *testing.T) {
	f := gateways(t, "a", "b")
	reached, release := f.w.Hold(world.StepToken)
	fo := f.submit("a", ask("k"))
	<-reached
	id := fo.Handoff()
	if err := f.gate("a").Drain(expired(t)); handoff.CodeOf(err) != handoff.CodeDeadline {
		t.Errorf("drained with a stream open: %v", err)
	}
	f.kill("a")
	if _, last := read(t, fo); last.Err == nil || last.Err.Code != handoff.CodeUnavailable {
		t.Errorf("told %+v", last)
	}
	release()
	if _, err := f.gate("b").Cancel(t.Context(), "t", id); err != nil {
		t.Error(err)
	}
	f.w.Pass(time.Hour) // what a dead gateway's steps could not undo ends with its lease
	f.clean()
}
