package placement

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

func failed(c handoff.Code) error { return handoff.Errorf(c, "test") }

// try takes a permit and ends it with code; it says whether it was let through.
func try(t *testing.T, b *Breakers, c handoff.Code, blame Blame) bool {
	t.Helper()
	permit, err := b.Take("p1", "d1")
	if err != nil {
		if handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Fatal(err)
		}
		return false
	}
	if c == handoff.CodeNone {
		permit.Done(nil, 0)
	} else {
		permit.Done(failed(c), blame)
	}
	return true
}

func TestBreakerOpensAfterFailuresInARowAndLetsOneProbeThrough(t *testing.T) {
	for blame, blocked := range map[Blame]func(*Breakers) bool{
		BlameP:    func(b *Breakers) bool { return b.EngineBlocked("p1") },
		BlameD:    func(b *Breakers) bool { return b.EngineBlocked("d1") },
		BlameLink: func(b *Breakers) bool { return b.LinkBlocked(Link{"p1", "d1"}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBreakers(nil)
			for i := range FailuresToOpen {
				if blocked(b) || !try(t, b, handoff.CodeProgress, blame) {
					t.Fatalf("blocked after %d failures", i)
				}
			}
			if !blocked(b) || try(t, b, handoff.CodeNone, 0) {
				t.Fatal("open, yet let through")
			}
			time.Sleep(FailureOpen + time.Second)
			if blocked(b) {
				t.Fatal("no probe is let through")
			}
			probe, err := b.Take("p1", "d1")
			if err != nil || !blocked(b) || try(t, b, handoff.CodeNone, 0) {
				t.Fatalf("a second probe is let through (%v)", err)
			}
			probe.Done(failed(handoff.CodeEngine), blame)
			if !blocked(b) {
				t.Fatal("the failed probe closed it")
			}
			time.Sleep(FailureOpen + time.Second)
			if !try(t, b, handoff.CodeNone, 0) || blocked(b) {
				t.Fatal("a good probe did not close it")
			}
		})
	}
}

func TestFailureCountsOnlyAgainstTheBlamed(t *testing.T) {
	b := NewBreakers(nil)
	for range FailuresToOpen {
		try(t, b, handoff.CodeUnavailable, BlameD)
	}
	if b.EngineBlocked("p1") || b.LinkBlocked(Link{"p1", "d1"}) || !b.EngineBlocked("d1") {
		t.Fatal("the failure of D counted against another")
	}
	if _, err := b.Take("p1", "d2"); err != nil {
		t.Fatal(err)
	}
}

func TestRefusalOfAHealthyEngineIsNoFailure(t *testing.T) {
	for _, c := range []handoff.Code{handoff.CodeCapacity, handoff.CodeCancelled, handoff.CodeDeadline,
		handoff.CodeStaleIncarnation, handoff.CodeConflict, handoff.CodeClosed, handoff.CodeInvalid} {
		b := NewBreakers(nil)
		for range 3 * FailuresToOpen {
			if !try(t, b, c, BlameP|BlameD|BlameLink) {
				t.Fatalf("%s opened a breaker", c)
			}
		}
	}
}

func TestSuccessInBetweenKeepsTheBreakerClosed(t *testing.T) {
	b := NewBreakers(nil)
	for range 2 * FailuresToOpen {
		try(t, b, handoff.CodeEngine, BlameP)
		try(t, b, handoff.CodeNone, 0)
	}
	if b.EngineBlocked("p1") {
		t.Fatal("failures that were not in a row opened it")
	}
}

func TestIntegrityFailureOpensPAtOnceAndForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreakers(nil)
		early, err := b.Take("p1", "d1")
		if err != nil {
			t.Fatal(err)
		}
		try(t, b, handoff.CodeIntegrity, BlameLink) // whatever was blamed
		if !b.EngineBlocked("p1") || b.EngineBlocked("d1") || b.LinkBlocked(Link{"p1", "d1"}) {
			t.Fatal("an integrity failure is P's, at once")
		}
		early.Done(nil, 0) // began before, must not close it
		time.Sleep(IntegrityOpen - time.Second)
		if !b.EngineBlocked("p1") {
			t.Fatal("P came back too early")
		}
		time.Sleep(2 * time.Second)
		if !try(t, b, handoff.CodeIntegrity, 0) || !b.EngineBlocked("p1") {
			t.Fatal("one more integrity failure did not open it again")
		}
	})
}

func TestForgottenProbeDoesNotShutAnEngineOutForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreakers(nil)
		for range FailuresToOpen {
			try(t, b, handoff.CodeEngine, BlameP)
		}
		time.Sleep(FailureOpen + time.Second)
		lost, err := b.Take("p1", "d1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ProbeLost + time.Second)
		if !b.EngineBlocked("p1") {
			t.Fatal("a lost probe is no success")
		}
		time.Sleep(FailureOpen + time.Second)
		if !try(t, b, handoff.CodeNone, 0) {
			t.Fatal("no further probe")
		}
		lost.Done(failed(handoff.CodeEngine), BlameP) // at last, of no interest
		if b.EngineBlocked("p1") {
			t.Fatal("a probe that was given up for lost still counted")
		}
	})
}

func TestBreakersAreBoundedAndTellChanges(t *testing.T) {
	var mu sync.Mutex
	opened := 0
	b := NewBreakers(func(_, to string) {
		mu.Lock()
		defer mu.Unlock()
		if to == "open" {
			opened++
		}
	})
	for i := range MaxBreakers + 10 {
		permit, err := b.Take(handoff.EngineID(fmt.Sprintf("p%d", i)), "d1")
		if err != nil {
			t.Fatal(err)
		}
		permit.Done(failed(handoff.CodeEngine), BlameP)
	}
	if n := len(b.table); n > MaxBreakers {
		t.Fatalf("%d breakers", n)
	}
	try(t, b, handoff.CodeIntegrity, 0)
	if opened != 1 {
		t.Fatalf("%d changes heard", opened)
	}
}

func TestBreakersStandConcurrentUse(t *testing.T) {
	b := NewBreakers(nil)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 50 {
				if permit, err := b.Take("p1", "d1"); err == nil {
					permit.Done(failed(handoff.CodeEngine), Blame(i%8))
				}
				b.EngineBlocked("p1")
				b.LinkBlocked(Link{"p1", "d1"})
			}
		})
	}
	wg.Wait()
	// Whichever opened first keeps the others from failing on.
	if !b.EngineBlocked("p1") && !b.EngineBlocked("d1") && !b.LinkBlocked(Link{"p1", "d1"}) {
		t.Fatal("nothing but failures, yet closed")
	}
}
