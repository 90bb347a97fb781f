package memcheck

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/activities/claimcheck/claimchecktest"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	claimchecktest.Run(t, func(*testing.T) (claimcheck.Store, func(time.Duration)) {
		var now time.Duration
		return New(func() time.Duration { return now }), func(d time.Duration) { now += d }
	})
}

func TestAFullStoreRefusesUntilBodiesEnd(t *testing.T) {
	var now time.Duration
	s := New(func() time.Duration { return now })
	for i := range MaxBodies {
		s.bodies[name{"t", handoff.HandoffID(rune('a' + i))}] = body{end: time.Hour}
	}
	if err := s.Put(t.Context(), claimchecktest.Input("t", "r"), activities.Body{}); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Errorf("over the limit: %v", err)
	}
	now = time.Hour
	if err := s.Put(t.Context(), claimchecktest.Input("t", "r"), activities.Body{}); err != nil || len(s.bodies) != 1 {
		t.Errorf("after their end: %v, %d", err, len(s.bodies))
	}
}
