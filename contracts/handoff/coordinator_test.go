package handoff

import (
	"math/rand"
	"testing"
)

// Whatever results come, in whatever order, each command once: the handoff
// ends, a second epoch begins only on a proof, and nothing is awaited at the end.
func TestArbitraryResultsEndTheHandoff(t *testing.T) {
	for seed := range int64(3000) {
		rnd := rand.New(rand.NewSource(seed))
		c := NewCoordinator(testPlan(1, 1), Policy{})
		reader := Reader{"g", 1, 1}
		c.NameReader(reader)
		pending := c.Commands()
		proved, delivered := false, false
		for range 400 {
			if c.Ended() {
				break
			}
			switch rnd.Intn(30) {
			case 0:
				c.StreamEnded([]Code{CodeNone, CodeStreamBroken}[rnd.Intn(2)], "")
			case 1:
				c.StreamLost(c.Reader(), CodeEngine, "")
				proved = proved || c.Phase() == PhasePlacing
			case 4:
				if p := c.Phase(); c.Outcome() == nil && (p == PhaseDecoding || p == PhaseFencing && rnd.Intn(4) == 0) {
					c.StreamResumes(c.Reader(), CodeEngine, "")
					delivered, proved = true, proved || c.Phase() == PhasePlacing
				}
			case 2:
				if rnd.Intn(10) == 0 {
					c.Cancel()
				}
			case 3:
				reader.Number++
				c.NameReader(reader)
			}
			if len(pending) > 0 {
				i := rnd.Intn(len(pending))
				cmd := pending[i]
				pending = append(pending[:i], pending[i+1:]...)
				r := arbitraryResult(rnd, c, cmd)
				epoch := c.Plan().Attempt.Epoch
				if r.Attempt == c.Plan().Attempt && r.Verdict == VerdictClosed {
					proved = true
				}
				if c.Step(r); c.Plan().Attempt.Epoch > epoch {
					if !proved {
						t.Fatalf("seed %d: epoch %d was planned without a proof", seed, c.Plan().Attempt.Epoch)
					}
					proved = false
				}
			} else if c.Phase() == PhaseDecoding {
				c.StreamEnded(CodeNone, "")
			}
			pending = append(pending, c.Commands()...)
		}
		switch {
		case !c.Ended():
			t.Fatalf("seed %d: still %s with %d commands", seed, c.Phase(), len(pending))
		case len(pending) > 0:
			t.Fatalf("seed %d: ended while %v is awaited", seed, pending)
		case c.Outcome() == nil:
			t.Fatalf("seed %d: no outcome", seed)
		case delivered && !c.Outcome().Committed:
			t.Fatalf("seed %d: a key whose client has tokens is free again", seed)
		}
	}
}

func arbitraryResult(rnd *rand.Rand, c *Coordinator, cmd Command) Result {
	r := Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
	if rnd.Intn(3) == 0 {
		r.Code = Code(1 + rnd.Intn(int(codeEnd)-1))
	}
	switch cmd.Step {
	case StepUndoTransfer, StepUndoPrefill, StepAskReader:
		r.Verdict = Verdict(1 + rnd.Intn(4))
		r.Reader = c.Reader()
	case StepPlace:
		next := testPlan(cmd.Plan.Attempt.Epoch+1, cmd.Plan.Attempt.Nonce+1)
		r.Next = &next
	}
	return r
}

func TestAPlanThatDoesNotFollowIsRefused(t *testing.T) {
	for i, f := range []func(*Plan){
		func(p *Plan) { p.Attempt.Epoch = 3 }, func(p *Plan) { p.Attempt.Handoff = "other" }, func(p *Plan) { p.Attempt.Nonce = 1 },
		func(p *Plan) { p.BodyDigest = Digest{7} }, func(p *Plan) { p.D.Incarnation = 0 },
	} {
		c := NewCoordinator(testPlan(1, 1), Policy{})
		c.Step(Result{Step: StepReserve, Attempt: c.Plan().Attempt, Code: CodeCapacity})
		c.Step(Result{Step: StepUndoTransfer, Attempt: c.Plan().Attempt, Verdict: VerdictClosed})
		next := testPlan(2, 2)
		f(&next)
		c.Step(Result{Step: StepPlace, Attempt: c.Plan().Attempt, Next: &next})
		if o := c.Outcome(); o == nil || o.Code != CodeInternal {
			t.Errorf("change %d: %s", i, c.Phase())
		}
	}
}

func TestTheNextPlanNamesTheReaderOfHistory(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{})
	c.NameReader(Reader{"g1", 1, 2})
	c.NameReader(Reader{"g0", 1, 1}) // older: changes nothing
	c.Step(Result{Step: StepReserve, Attempt: c.Plan().Attempt, Code: CodeCapacity})
	c.Step(Result{Step: StepUndoTransfer, Attempt: c.Plan().Attempt, Verdict: VerdictClosed})
	next := testPlan(2, 2)
	c.Step(Result{Step: StepPlace, Attempt: c.Plan().Attempt, Next: &next})
	if got := c.Plan().Reader; got != (Reader{"g1", 1, 2}) || c.Plan().Attempt.Epoch != 2 {
		t.Errorf("plan %+v", c.Plan())
	}
}

// A client that comes again while its first reader is being asked: that one gave up for
// itself, and the one that history names by then may be delivering. In the last epoch no
// plan follows that would find the word void.
func TestTheWordOfAnEarlierReaderEndsNothingInTheLastEpochEither(t *testing.T) {
	for _, old := range []bool{false, true} {
		c := NewCoordinator(testPlan(1, 1), Policy{MaxEpochs: 1, AnyWord: old})
		a := c.Plan().Attempt
		c.Step(Result{Step: StepCommit, Attempt: a, Code: CodeUnavailable})
		c.Step(Result{Step: StepReserve, Attempt: a, Code: CodeUnavailable})
		c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictUnknown})
		c.Step(Result{Step: StepUndoPrefill, Attempt: a, Verdict: VerdictUnknown})
		c.Commands()
		first, second := c.Reader(), Reader{"g1", 1, 2}
		c.NameReader(second)
		c.Step(Result{Step: StepAskReader, Attempt: a, Verdict: VerdictClosed, Reader: first})
		if old {
			if o := c.Outcome(); o == nil {
				t.Error("a run of a release before ends otherwise than its history")
			}
			continue
		}
		if o := c.Outcome(); o != nil {
			t.Fatalf("%+v while another reader may deliver", o)
		}
		if got := c.Commands(); len(got) != 1 || got[0].Step != StepAskReader {
			t.Fatalf("%+v, want the question to the other reader", got)
		}
		c.Step(Result{Step: StepAskReader, Attempt: a, Verdict: VerdictCommitted, Reader: second})
		if c.Phase() != PhaseDecoding || c.Outcome() != nil {
			t.Errorf("%s %+v: the reader delivers", c.Phase(), c.Outcome())
		}
	}
}

// The same where another epoch was to follow and no engine is left for it.
func TestTheWordOfAnEarlierReaderEndsNothingWhereNothingCanBePlaced(t *testing.T) {
	for _, old := range []bool{false, true} {
		c := NewCoordinator(testPlan(1, 1), Policy{AnyWord: old})
		a := c.Plan().Attempt
		c.Step(Result{Step: StepCommit, Attempt: a, Code: CodeUnavailable})
		c.StreamLost(c.Reader(), CodeEngine, "")
		c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictUnknown})
		c.Step(Result{Step: StepUndoPrefill, Attempt: a, Verdict: VerdictUnknown})
		if c.Phase() != PhasePlacing {
			t.Fatal(c.Phase())
		}
		c.Commands()
		second := Reader{"g1", 1, 2}
		c.NameReader(second)
		c.Step(Result{Step: StepPlace, Attempt: a, Code: CodeUnavailable, Detail: "no engine"})
		if old {
			if c.Outcome() == nil {
				t.Error("a run of a release before ends otherwise than its history")
			}
			continue
		}
		if got := c.Commands(); c.Outcome() != nil || len(got) != 1 || got[0].Step != StepAskReader {
			t.Fatalf("%+v %+v, want the question to the other reader", c.Outcome(), got)
		}
		c.Step(Result{Step: StepAskReader, Attempt: a, Verdict: VerdictClosed, Reader: second})
		c.Step(Result{Step: StepPlace, Attempt: a, Code: CodeUnavailable, Detail: "no engine"})
		if o := c.Outcome(); o == nil || o.Committed || o.Code != CodeEngine {
			t.Errorf("%+v: both readers gave it up, and nothing can be placed", o)
		}
	}
}

func TestALostStreamIsNotAdoptedAgain(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{})
	a := c.Plan().Attempt
	c.Step(Result{Step: StepTransfer, Attempt: a, Code: CodeUnavailable})
	c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictCommitted})
	if c.Phase() != PhaseDecoding {
		t.Fatal(c.Phase())
	}
	c.StreamLost(c.Reader(), CodeEngine, "")
	if c.Phase() != PhasePlacing {
		t.Errorf("%s: the reader's word is a proof whatever D did", c.Phase())
	}
	c.Commands()
	c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictCommitted})
	if c.Phase() != PhasePlacing {
		t.Errorf("%s: a commit that its reader gave up was adopted", c.Phase())
	}
}
