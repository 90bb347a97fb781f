package handoff

import "testing"

// An attempt that was delivered and broke is given up for good; only then may
// the next one be delivered, and never the other way round (S2, S10).
func TestAReaderResumesOnlyWhatItDelivered(t *testing.T) {
	var r Reading
	first, second := Attempt{Handoff: "h", Epoch: 1, Nonce: 1}, Attempt{Handoff: "h", Epoch: 2, Nonce: 2}
	if r.Resume(first) {
		t.Fatal("an attempt of which nothing was delivered is resumed")
	}
	if !r.Deliver(first) || r.Deliver(second) {
		t.Fatal("bytes of two attempts")
	}
	if !r.Resume(first) || r.Resume(first) {
		t.Fatal("it is given up once")
	}
	if r.Deliver(first) || r.GiveUp(first) != ReaderGivenUp {
		t.Fatal("a late byte of the broken attempt is delivered")
	}
	if !r.Deliver(second) || r.GiveUp(second) != ReaderDelivering {
		t.Fatal("the next attempt is not delivered")
	}
}

// A stream that resumes goes on under another epoch; if it cannot, it ends
// broken and its key stays spent: its client has tokens.
func TestAStreamThatCannotResumeStaysCommitted(t *testing.T) {
	for name, end := range map[string]func(*Coordinator){
		"no placement": func(c *Coordinator) {
			c.Step(Result{Step: StepPlace, Attempt: c.Plan().Attempt, Code: CodeCapacity, Detail: "no room"})
		},
		"cancelled": func(c *Coordinator) { c.Cancel() },
		"the next one fails as often as it may": func(c *Coordinator) {
			for c.Outcome() == nil {
				next := testPlan(c.Plan().Attempt.Epoch+1, c.Plan().Attempt.Nonce+1)
				c.Step(Result{Step: StepPlace, Attempt: c.Plan().Attempt, Next: &next})
				c.Commands()
				c.Step(Result{Step: StepPrefill, Attempt: c.Plan().Attempt, Code: CodeEngine})
				c.Step(Result{Step: StepUndoTransfer, Attempt: c.Plan().Attempt, Verdict: VerdictClosed})
			}
		},
	} {
		c := decoding(t)
		c.StreamResumes(c.Reader(), CodeEngine, "D died")
		if c.Phase() != PhasePlacing {
			t.Fatalf("%s: the reader's word leads to %s", name, c.Phase())
		}
		c.Commands()
		end(c)
		if o := c.Outcome(); o == nil || !o.Committed || o.Code == CodeNone {
			t.Errorf("%s: %+v", name, o)
		} else if name != "cancelled" && o.Code != CodeStreamBroken {
			t.Errorf("%s: %s", name, o.Code)
		}
	}
}

func TestAStreamThatResumesEndsWhole(t *testing.T) {
	c := decoding(t)
	c.StreamResumes(c.Reader(), CodeEngine, "D died")
	next := testPlan(2, 9)
	c.Step(Result{Step: StepPlace, Attempt: c.Plan().Attempt, Next: &next})
	for _, s := range []Step{StepReserve, StepPrefill, StepTransfer, StepCommit} {
		c.Step(Result{Step: s, Attempt: c.Plan().Attempt})
	}
	if c.Phase() != PhaseDecoding || c.Plan().Attempt.Epoch != 2 {
		t.Fatal(c.Phase(), c.Plan().Attempt)
	}
	c.StreamEnded(CodeNone, "")
	if o := c.Outcome(); o.Code != CodeNone || !o.Committed || o.Attempt.Epoch != 2 {
		t.Fatalf("%+v", o)
	}
}

func decoding(t *testing.T) *Coordinator {
	t.Helper()
	c := NewCoordinator(testPlan(1, 1), Policy{})
	for _, s := range []Step{StepReserve, StepPrefill, StepTransfer, StepCommit} {
		c.Step(Result{Step: s, Attempt: c.Plan().Attempt})
	}
	if c.Phase() != PhaseDecoding {
		t.Fatal(c.Phase())
	}
	c.Commands()
	return c
}
