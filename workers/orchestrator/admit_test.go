package orchestrator

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestAStartWaitsForItsTurnOrIsRefusedTyped(t *testing.T) {
	s := newStarts(1)
	first, err := s.admit(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.admit(t.Context(), 2*time.Millisecond); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Errorf("a full house answers %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.admit(left, time.Minute); handoff.CodeOf(err) != handoff.CodeCancelled {
		t.Errorf("a client that left is told %v", err)
	}
	first()
	second, err := s.admit(t.Context(), time.Minute)
	if err != nil {
		t.Fatalf("the turn was not given back: %v", err)
	}
	second()
}

// A burst of 600: whoever can be made durable in time waits for its turn, and
// the rest are refused at once, not after the wait, and told when to come again.
// Fifteen of such a burst once waited 5 s for a refusal that said "in a second".
func TestABurstIsServedAsFarAsTimeLetsItAndRefusedAtOnce(t *testing.T) {
	const burst, each, rooms = 600, 160 * time.Millisecond, 16 // 100 a second: 500 within admitWait
	synctest.Test(t, func(t *testing.T) {
		s := newStarts(rooms)
		for range 64 { // until it is known how long a start takes
			over, err := s.admit(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(each)
			over()
		}
		began := time.Now()
		var mu sync.Mutex
		served, refused, late := 0, 0, 0
		var all sync.WaitGroup
		for range burst {
			all.Go(func() {
				over, err := s.admit(t.Context(), time.Minute)
				waited := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					served++
					time.AfterFunc(each, over)
					return
				}
				refused++
				var busy *Busy
				if !errors.As(err, &busy) || handoff.CodeOf(err) != handoff.CodeCapacity {
					t.Errorf("refused with %v", err)
					return
				}
				switch {
				case waited > 0:
					late++ // its turn was due in the very moment that its time was over
				case busy.After < admitWait:
					t.Errorf("told to come again in %s", busy.After)
				}
			})
		}
		all.Wait()
		time.Sleep(each) // the last ones give their turns back
		if served != rooms+int(admitWait/each)*rooms || served+refused != burst || late >= rooms {
			t.Errorf("%d served, %d refused, %d of them late", served, refused, late)
		}
		again, err := s.admit(t.Context(), time.Minute)
		if err != nil {
			t.Fatalf("no turn after the burst: %v", err)
		}
		again()
	})
}

func TestOneSlowStartRefusesNobody(t *testing.T) {
	s := newStarts(16)
	s.took(4 * time.Second) // the first, while connections are made
	if wait := s.needs(100); wait > admitWait {
		t.Errorf("a hundred are thought to wait %s", wait)
	}
	for range 16 {
		s.took(100 * time.Millisecond)
	}
	if wait := s.needs(600); wait > admitWait {
		t.Errorf("after quick ones six hundred are thought to wait %s", wait)
	}
}
