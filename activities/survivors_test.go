package activities

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// runs begins a step that runs until its context ends, and gives what it is told.
func runs(a *Attempts, x *attempt) (told chan error) {
	began := make(chan struct{})
	told = make(chan error, 1)
	go func() {
		_, err := a.do(context.Background(), x, handoff.StepPrefill, time.Hour, func(ctx context.Context) (steps.Output, error) {
			close(began)
			<-ctx.Done()
			return steps.Output{}, ctx.Err()
		})
		told <- err
	}()
	<-began
	return told
}

// Whatever ends an attempt in this process stops what runs for it, and says why:
// either undo by itself, soft or hard, an end, the worker's stop.
func TestWhateverEndsAnAttemptStopsWhatRunsForIt(t *testing.T) {
	undo := func(fn func(*rig) stepFunc, hard bool) func(*rig) {
		return func(r *rig) {
			in := r.in
			in.Hard = hard
			mustDo(t, fn(r), in)
		}
	}
	target := func(r *rig) stepFunc { return r.UndoTransfer }
	source := func(r *rig) stepFunc { return r.UndoPrefill }
	for name, c := range map[string]struct {
		end  func(*rig)
		want handoff.Code
	}{
		"undo of the target":    {undo(target, false), handoff.CodeClosed},
		"undo of the source":    {undo(source, false), handoff.CodeClosed},
		"release of the target": {undo(target, true), handoff.CodeCancelled},
		"release of the source": {undo(source, true), handoff.CodeCancelled},
		"its end":               {func(r *rig) { r.Attempts.Forget(r.in.Request.Plan.Attempt) }, handoff.CodeClosed},
		"the worker's stop":     {func(r *rig) { r.Attempts.Close() }, handoff.CodeUnavailable},
	} {
		r := newRig(t)
		x, err := r.Attempts.hold(r.in.Request.Plan, r.in.Request.Route)
		if err != nil {
			t.Fatal(err)
		}
		told := runs(r.Attempts, x)
		c.end(r)
		if err := <-told; handoff.CodeOf(err) != c.want {
			t.Errorf("%s: told %v, want %s", name, err, c.want)
		}
	}
}

// A worker that stops waits for what it began.
func TestAStoppingWorkerWaitsForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAttempts(1)
		x, err := a.hold(planned, steps.Route{})
		if err != nil {
			t.Fatal(err)
		}
		over := false
		go a.do(t.Context(), x, handoff.StepPrefill, time.Hour, func(ctx context.Context) (steps.Output, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // a peer that takes its time
			over = true
			return steps.Output{}, nil
		})
		synctest.Wait()
		if a.Close(); !over {
			t.Error("it did not wait")
		}
	})
}

// Leases are renewed as long as a step runs and for a while after the last use:
// another step, the end of one, a hold.
func TestTheLastUseOfAnAttemptCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		a := NewAttempts(1)
		defer a.Close()
		x, err := a.hold(planned, steps.Route{})
		if err != nil {
			t.Fatal(err)
		}
		holds := func(want int, why string) {
			t.Helper()
			if n := len(a.held(idle)); n != want {
				t.Errorf("%s: %d are held", why, n)
			}
		}
		if _, err := a.do(t.Context(), x, handoff.StepPrefill, time.Hour, func(context.Context) (steps.Output, error) {
			time.Sleep(5 * idle)
			return steps.Output{}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if took := a.Took(planned.Attempt, handoff.StepPrefill); took != 5*idle {
			t.Errorf("it took %s", took)
		}
		if took := a.Took(planned.Attempt, handoff.StepTransfer); took != 0 {
			t.Errorf("what never ran took %s", took)
		}
		time.Sleep(idle / 2)
		holds(1, "a step has just ended")
		time.Sleep(idle / 2)
		holds(0, "idle")
		if a.Sweep(2 * idle); a.Len() != 1 {
			t.Error("swept too soon")
		}
		if _, err := a.hold(planned, steps.Route{}); err != nil {
			t.Fatal(err)
		}
		holds(1, "used again")
		time.Sleep(idle)
		if at := a.clock(planned.Attempt)(); at != (7 * idle).Microseconds() {
			t.Errorf("its clock stands at %d µs", at)
		}
		elsewhere := a.clock(handoff.Attempt{})
		time.Sleep(time.Second)
		if at := elsewhere(); at != time.Second.Microseconds() {
			t.Errorf("the clock of one that is not known here stands at %d µs", at)
		}
		if a.Sweep(idle); a.Len() != 0 {
			t.Error("never swept")
		}
	})
}

// Whoever waits for P's source is told once it is open; who cannot be held waits
// for ever, as for one that never opens.
func TestOpenedIsToldOnce(t *testing.T) {
	a, x := held(t, 1)
	opens := a.Opened(planned, steps.Route{})
	select {
	case <-opens:
		t.Fatal("open at once")
	default:
	}
	a.open(x, opened{address: "p"})
	a.open(x, opened{address: "late"})
	<-opens
	if x.source.address != "p" {
		t.Error("a second open changed the first:", x.source.address)
	}
	other := planned
	other.Attempt.Epoch = 2
	if a.Opened(other, steps.Route{}) != nil {
		t.Error("one over the limit can be waited for")
	}
}

// Renewals that fail are counted, whoever refused: a daemon, its address, the ledger.
func TestARenewalThatFailsIsCounted(t *testing.T) {
	r := &renewals{calls: map[string][]int{}}
	s := &Steps{Movers: r, Ledger: brokenLedger{}, Observer: counting{r},
		Attempts: keepMany(t, 1, steps.Route{P: steps.Endpoint{Control: "bad"}, D: steps.Endpoint{Control: "d"}})}
	s.renew(t.Context(), time.Minute)
	if len(r.calls["renew-lease denied"]) != 1 || len(r.calls["renew-promise unavailable"]) != 1 || len(r.calls["renew-lease none"]) != 0 || len(r.calls["d"]) == 0 {
		t.Errorf("counted %v", r.calls)
	}
}

type brokenLedger struct{ ledger.Ledger }

func (brokenLedger) Renew(context.Context, handoff.EngineID, []handoff.Attempt, time.Duration) ([]handoff.Attempt, error) {
	return nil, handoff.Errorf(handoff.CodeUnavailable, "no answer")
}

type counting struct{ *renewals }

func (c counting) Step(s handoff.Step, code handoff.Code, _ time.Duration) {
	c.note(string(s)+" "+code.String(), 1)
}

// The head start's undo gives every failure and waits for each.
func TestAnUndoOfAHeadStartWaitsForEachSide(t *testing.T) {
	r := newRig(t)
	mustDo(t, r.Reserve, r.in)
	reached, release := r.w.Hold(handoff.StepUndoPrefill)
	var done sync.WaitGroup
	var before bool
	done.Go(func() {
		var err error
		if before, err = r.ReleaseNow(t.Context(), r.in.Request); err != nil {
			t.Error(err)
		}
	})
	<-reached
	release()
	done.Wait()
	if left := r.w.Left(); !before || len(left) > 0 || r.Attempts.Len() > 0 {
		t.Errorf("before the commit: %v; left: %v", before, left)
	}
}
