package handoff

import (
	"testing"
	"time"
)

// A repeat of a promise prolongs it, and takes no more.
func TestARepeatedPromiseLastsLonger(t *testing.T) {
	c, a := Capacity{Total: 4}, testPlan(1, 1).Attempt
	at := func(d time.Duration) Instant { return Instant(0) + Instant(d) }
	for _, now := range []time.Duration{0, 500 * time.Millisecond} {
		if err := c.Reserve(at(now), a, 2, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if c.Expire(at(1200 * time.Millisecond)); c.Free() != 2 {
		t.Errorf("%d blocks are free while the repeat's lease lasts", c.Free())
	}
	if c.Expire(at(1600 * time.Millisecond)); c.Free() != 4 {
		t.Errorf("%d blocks are free after it", c.Free())
	}
}

// What an operator replaces is fenced like what failed, once.
func TestAReplacedAttemptIsFenced(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{})
	c.Commands()
	if !c.Replace("moved") || c.Phase() != PhaseFencing {
		t.Fatalf("it is %v", c.Phase())
	}
	undo := false
	for _, cmd := range c.Commands() {
		undo = undo || cmd.Step == StepUndoTransfer
	}
	if !undo {
		t.Error("nothing is undone")
	}
	if c.Replace("again") {
		t.Error("replaced twice")
	}
}
