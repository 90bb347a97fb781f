package activities

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

var planned = handoff.Plan{Attempt: handoff.Attempt{Handoff: "r", Epoch: 1, Nonce: 1}, BodyDigest: handoff.Digest{1}}

func held(t *testing.T, limit int) (*Attempts, *attempt) {
	t.Helper()
	a := NewAttempts(limit)
	t.Cleanup(a.Close)
	x, err := a.hold(planned, steps.Route{})
	if err != nil {
		t.Fatal(err)
	}
	return a, x
}

func TestHeadStartAndActivityShareOneRun(t *testing.T) {
	a, x := held(t, 4)
	var runs atomic.Int32
	release := make(chan struct{})
	step := func(context.Context) (steps.Output, error) {
		runs.Add(1)
		<-release
		return steps.Output{Blocks: 7}, nil
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			out, err := a.do(t.Context(), x, handoff.StepReserve, time.Minute, step)
			if err != nil || out.Blocks != 7 {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
	close(release)
	wg.Wait()
	if out, err := a.do(t.Context(), x, handoff.StepReserve, time.Minute, step); err != nil || out.Blocks != 7 || runs.Load() != 1 {
		t.Errorf("%+v, %v after %d runs", out, err, runs.Load())
	}
}

func TestAnAskerThatLeavesStopsNothing(t *testing.T) {
	a, x := held(t, 4)
	release := make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := a.do(ctx, x, handoff.StepPrefill, time.Minute, func(ctx context.Context) (steps.Output, error) {
		<-release
		return steps.Output{}, ctx.Err()
	})
	if handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("who left was told %v", err)
	}
	close(release)
	if _, err := a.do(t.Context(), x, handoff.StepPrefill, time.Minute, nil); err != nil {
		t.Errorf("who stayed was told %v", err)
	}
}

func TestAnUnknownResultIsAskedAgainAndARefusalIsKept(t *testing.T) {
	a, x := held(t, 4)
	runs := 0
	fails := func(c handoff.Code) func(context.Context) (steps.Output, error) {
		return func(context.Context) (steps.Output, error) {
			runs++
			return steps.Output{}, handoff.Errorf(c, "")
		}
	}
	for _, c := range []struct {
		step handoff.Step
		code handoff.Code
		runs int
	}{{handoff.StepReserve, handoff.CodeUnavailable, 3}, {handoff.StepPrefill, handoff.CodeCapacity, 1}} {
		runs = 0
		for range 3 {
			if _, err := a.do(t.Context(), x, c.step, time.Minute, fails(c.code)); handoff.CodeOf(err) != c.code {
				t.Errorf("%s: %v", c.step, err)
			}
		}
		if runs != c.runs {
			t.Errorf("%s was run %d times, want %d", c.code, runs, c.runs)
		}
	}
	runs = 0
	untyped := func(context.Context) (steps.Output, error) { runs++; return steps.Output{}, errors.New("who knows") }
	for range 2 {
		a.do(t.Context(), x, handoff.StepTransfer, time.Minute, untyped)
	}
	if runs != 2 {
		t.Error("an untyped failure was taken for an answer")
	}
}

func TestWhyAnAttemptWasStoppedIsWhatItsStepsSay(t *testing.T) {
	a, x := held(t, 4)
	began := make(chan struct{})
	go func() {
		<-began
		a.Stop(planned.Attempt, handoff.Errorf(handoff.CodeCancelled, "released"))
	}()
	_, err := a.do(t.Context(), x, handoff.StepPrefill, time.Minute, func(ctx context.Context) (steps.Output, error) {
		close(began)
		<-ctx.Done()
		return steps.Output{}, ctx.Err()
	})
	if handoff.CodeOf(err) != handoff.CodeCancelled {
		t.Errorf("told %v", err)
	}
	if _, err := a.do(t.Context(), x, handoff.StepTransfer, time.Minute, func(ctx context.Context) (steps.Output, error) {
		return steps.Output{}, ctx.Err()
	}); handoff.CodeOf(err) != handoff.CodeCancelled {
		t.Errorf("a step of a stopped attempt was told %v", err)
	}
}

func TestAStepThatDoesNotReturnEndsWithItsBudget(t *testing.T) {
	a, x := held(t, 4)
	_, err := a.do(t.Context(), x, handoff.StepPrefill, time.Millisecond, func(ctx context.Context) (steps.Output, error) {
		<-ctx.Done()
		return steps.Output{}, handoff.Errorf(handoff.CodeUnavailable, "%v", ctx.Err())
	})
	if handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("told %v", err)
	}
}

func TestOnePlanAnAttempt(t *testing.T) {
	a, _ := held(t, 4)
	other := planned
	other.BodyDigest = handoff.Digest{2}
	if _, err := a.hold(other, steps.Route{}); handoff.CodeOf(err) != handoff.CodeConflict {
		t.Errorf("another plan was taken: %v", err)
	}
	if err := a.Keep(other, steps.Route{}); handoff.CodeOf(err) != handoff.CodeConflict {
		t.Errorf("another plan was kept: %v", err)
	}
}

func TestTheTableIsBounded(t *testing.T) {
	a, _ := held(t, 1)
	other := planned
	other.Attempt.Epoch = 2
	if _, err := a.hold(other, steps.Route{}); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Errorf("over the limit: %v", err)
	}
	a.Forget(planned.Attempt)
	if _, err := a.hold(other, steps.Route{}); err != nil || a.Len() != 1 {
		t.Errorf("after one was forgotten: %v", err)
	}
}

func TestLeasesAreRenewedForWhatIsReadOrRuns(t *testing.T) {
	a, x := held(t, 4)
	if n := len(a.held(time.Minute)); n != 1 {
		t.Errorf("just used, %d are held", n)
	}
	if n := len(a.held(0)); n != 0 {
		t.Errorf("idle, %d are held", n)
	}
	release := make(chan struct{})
	began := make(chan struct{})
	go a.do(t.Context(), x, handoff.StepPrefill, time.Minute, func(context.Context) (steps.Output, error) {
		close(began)
		<-release
		return steps.Output{}, nil
	})
	<-began
	if n := len(a.held(0)); n != 1 {
		t.Errorf("running, %d are held", n)
	}
	close(release)
	if err := a.Keep(planned, steps.Route{}); err != nil {
		t.Fatal(err)
	}
	a.Stop(planned.Attempt, handoff.Errorf(handoff.CodeClosed, "adopted after all"))
	if n := len(a.held(0)); n != 1 {
		t.Errorf("read, %d are held", n)
	}
	a.Unkeep(planned.Attempt)
	if n := len(a.held(time.Hour)); n != 0 {
		t.Errorf("given up, %d are held", n)
	}
}

func TestASweepForgetsWhatNobodyUses(t *testing.T) {
	a, x := held(t, 4)
	if err := a.Keep(planned, steps.Route{}); err != nil {
		t.Fatal(err)
	}
	if a.Sweep(0); a.Len() != 1 {
		t.Error("what is read was swept")
	}
	a.Unkeep(planned.Attempt)
	release, began := make(chan struct{}), make(chan struct{})
	go a.do(t.Context(), x, handoff.StepPrefill, time.Minute, func(context.Context) (steps.Output, error) {
		close(began)
		<-release
		return steps.Output{}, nil
	})
	<-began
	if a.Sweep(0); a.Len() != 1 {
		t.Error("what runs was swept")
	}
	close(release)
	if _, err := a.do(t.Context(), x, handoff.StepPrefill, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if a.Sweep(time.Hour); a.Len() != 1 {
		t.Error("what was just used was swept")
	}
	if a.Sweep(0); a.Len() != 0 {
		t.Error("what nobody uses was kept")
	}
}

func TestAStoppingWorkerBeginsNothing(t *testing.T) {
	a, x := held(t, 4)
	a.Close()
	if _, err := a.do(t.Context(), x, handoff.StepPrefill, time.Minute, nil); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("a step began: %v", err)
	}
	if _, err := a.hold(handoff.Plan{}, steps.Route{}); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("an attempt began: %v", err)
	}
}

func TestManyUseTheTableAtOnce(t *testing.T) {
	a := NewAttempts(64)
	defer a.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		p := planned
		p.Attempt.Nonce = handoff.Nonce(i%4 + 1)
		wg.Go(func() {
			for n := range 200 {
				x, err := a.hold(p, steps.Route{})
				if err != nil {
					t.Error(err)
					return
				}
				a.do(t.Context(), x, handoff.Step([]string{"reserve", "prefill"}[n%2]), time.Minute, func(context.Context) (steps.Output, error) {
					return steps.Output{}, handoff.Errorf(handoff.CodeUnavailable, "")
				})
				switch n % 5 {
				case 0:
					a.Forget(p.Attempt)
				case 1:
					a.Stop(p.Attempt, handoff.Errorf(handoff.CodeClosed, ""))
				case 2:
					if err := a.Keep(p, steps.Route{}); err != nil {
						t.Error(err)
					}
				case 3:
					a.Unkeep(p.Attempt)
				}
				a.held(time.Second)
				a.Sweep(time.Hour)
			}
		})
	}
	wg.Wait()
}
