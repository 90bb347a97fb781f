package schedule

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a scheduler in the test's bubble until the test ends.
func start(t *testing.T, o Options) *Scheduler {
	t.Helper()
	s := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func TestPrefillsShareTheDeviceInTurnAndDecodesStepEachRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Options{Profile: Profile{PrefillTokensPerSecond: 1000, StepInterval: 10 * time.Millisecond}, ChunkTokens: 100, MaxRunning: 4})
		var order []string
		work := func(name string) func(int) error {
			return func(int) error { order = append(order, name); return nil }
		}
		began := time.Now()
		long, short := s.Prefill(300, work("long")), s.Prefill(100, work("short"))
		steps := 0
		decode := s.Decode(func() (bool, error) { steps++; order = append(order, "step"); return steps == 2, nil })
		for _, task := range []*Task{long, short, decode} {
			if <-task.Done(); task.Err() != nil {
				t.Error(task.Err())
			}
		}
		// The order of the first round depends on which came first; each share must be there.
		if got := slices.Index(order, "short"); got < 0 || order[len(order)-1] != "long" {
			t.Errorf("order %v", order)
		}
		if took := time.Since(began); took < 400*time.Millisecond || took > 430*time.Millisecond {
			t.Errorf("400 tokens and two steps took %v", took)
		}
	})
}

func TestAStoppedTaskIsNotWorkedOnAfterDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Options{Profile: Profile{StepInterval: time.Millisecond}, ChunkTokens: 1, MaxRunning: 1})
		cause := errors.New("cancelled")
		var decode *Task
		steps := 0
		decode = s.Decode(func() (bool, error) {
			if steps++; steps == 3 {
				decode.Stop(cause) // while it is busy
			}
			return false, nil
		})
		waiting := s.Decode(func() (bool, error) { return true, nil })
		if l := s.Load(); l.Running != 1 || l.Waiting != 1 {
			t.Errorf("%+v", l)
		}
		<-decode.Done()
		<-waiting.Done()
		time.Sleep(10 * time.Millisecond) // of the bubble's clock
		if decode.Err() != cause || steps != 3 || waiting.Err() != nil {
			t.Errorf("%v after %d steps, then %v", decode.Err(), steps, waiting.Err())
		}
		decode.Stop(errors.New("again"))
		if decode.Err() != cause {
			t.Error("the first end counts")
		}
	})
}

func TestAFailureEndsItsTaskAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Options{ChunkTokens: 10, MaxRunning: 8})
		broken := errors.New("broken")
		bad := s.Prefill(100, func(int) error { return broken })
		tokens := 0
		good := s.Prefill(95, func(n int) error { tokens += n; return nil })
		<-bad.Done()
		<-good.Done()
		if bad.Err() != broken || good.Err() != nil || tokens != 95 {
			t.Errorf("%v, %v, %d tokens", bad.Err(), good.Err(), tokens)
		}
	})
}

func TestEveryTaskEndsWithTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Profile: Profile{StepInterval: time.Hour}, ChunkTokens: 1, MaxRunning: 1})
		tasks := []*Task{s.Decode(func() (bool, error) { return false, nil }), s.Decode(func() (bool, error) { return false, nil })}
		ctx, cancel := context.WithCancelCause(t.Context())
		go s.Run(ctx)
		synctest.Wait()
		stopping := errors.New("stopping")
		cancel(stopping)
		tasks = append(tasks, s.Prefill(1, func(int) error { return nil }))
		for _, task := range tasks {
			if <-task.Done(); task.Err() == nil {
				t.Error("a task ended as complete")
			}
		}
		synctest.Wait()
		if late := s.Prefill(1, func(int) error { return nil }); late.Err() == nil {
			t.Error("a task was taken after the end")
		}
	})
}
