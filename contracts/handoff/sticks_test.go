package handoff

import "testing"

// A worker comes late: TD committed, the reader died, the decode's lease ended.
// What it finds is aborted, and that was a commit: the outcome sticks (S13).
func TestAnAbortedAttemptEndsAsACommittedOne(t *testing.T) {
	for name, source := range map[string]Verdict{"TP said yes": VerdictOver, "TP does not answer": VerdictUnknown} {
		c := NewCoordinator(testPlan(1, 1), Policy{})
		answer := func(cmd Command) Result {
			r := Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
			switch cmd.Step {
			case StepReserve, StepTransfer:
				r.Code = CodeAborted
			case StepUndoTransfer:
				r.Verdict = VerdictOver
			case StepUndoPrefill:
				r.Verdict = source
			}
			return r
		}
		for pending := c.Commands(); len(pending) > 0; pending = append(pending[1:], c.Commands()...) {
			c.Step(answer(pending[0]))
		}
		if o := c.Outcome(); o == nil || !o.Committed || o.Code != CodeAborted {
			t.Errorf("%s: the outcome is %+v", name, o)
		}
	}
}

// answers runs a coordinator's commands by given results until none is left.
func answers(c *Coordinator, answer func(Command) Result) {
	for pending := c.Commands(); len(pending) > 0; pending = append(pending[1:], c.Commands()...) {
		if r := answer(pending[0]); r.Step != "" {
			c.Step(r)
		}
	}
}

// D commits and decodes, its answer stays on the way, and D dies: the reader's
// report of tokens that it delivered is the only word of the commit (S13).
func TestWhatWasDeliveredWasCommittedThoughNobodyAnsweredTheCommit(t *testing.T) {
	c := NewCoordinator(testPlan(1, 1), Policy{})
	answers(c, func(cmd Command) Result {
		if cmd.Step == StepCommit {
			return Result{} // never
		}
		return Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
	})
	c.StreamEnded(CodeStreamBroken, "after position 2")
	if o := c.Outcome(); o == nil || !o.Committed || o.Code != CodeStreamBroken {
		t.Errorf("the outcome is %+v", o)
	}
	c = NewCoordinator(testPlan(1, 1), Policy{})
	c.Cancel()
	if c.StreamEnded(CodeStreamBroken, ""); !c.Outcome().Committed {
		t.Error("a cancel that came after tokens frees the key")
	}
}

// The last epoch's commit has no answer and neither closer proves it closed: the
// reader is asked before the failure is said, since it may be delivering (S13).
func TestTheLastEpochIsNotGivenUpUnproved(t *testing.T) {
	for verdict, want := range map[Verdict]Outcome{
		VerdictClosed:  {Code: CodeUnavailable},
		VerdictUnknown: {Code: CodeOutcomeUnknown},
	} {
		asked := 0
		run := func(p Policy) *Outcome {
			c := NewCoordinator(testPlan(1, 1), p)
			answers(c, func(cmd Command) Result {
				r := Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
				switch cmd.Step {
				case StepCommit:
					r.Code = CodeUnavailable
				case StepUndoTransfer:
					r.Verdict = VerdictUnknown
				case StepUndoPrefill:
					r.Verdict = VerdictOver
				case StepAskReader:
					asked++
					r.Verdict, r.Reader = verdict, c.Reader()
				}
				return r
			})
			return c.Outcome()
		}
		if o := run(Policy{MaxEpochs: 1}); o == nil || o.Code != want.Code || o.Committed || asked != 1 {
			t.Errorf("the reader says %v: %+v, asked %d times", verdict, o, asked)
		}
		if o := run(Policy{MaxEpochs: 1, Unasked: true}); o == nil || o.Code != CodeUnavailable || asked != 1 {
			t.Errorf("an earlier release's handoff asks its reader: %+v", o)
		}
	}
}

// A reset run begins with the plan of its first epoch, which everybody proves closed;
// a later one, which its history forgot, may have delivered. Whatever failed before
// the run heard that it is a reset one, its key is spent (S13, rule 13).
func TestAResetRunsKeyIsSpentWhateverFailedFirst(t *testing.T) {
	reset := func(cmd Command) Result {
		r := Result{Step: cmd.Step, Attempt: cmd.Plan.Attempt}
		switch cmd.Step {
		case StepReserve, StepPrefill, StepTransfer, StepCommit, StepPlace:
			r.Code = CodeReset
		case StepUndoTransfer, StepUndoPrefill:
			r.Verdict = VerdictClosed
		}
		return r
	}
	first := NewCoordinator(testPlan(1, 1), Policy{})
	answers(first, reset)
	lost := NewCoordinator(testPlan(1, 1), Policy{}) // the reader's report of the first epoch is told to the new run as well
	lost.StreamLost(lost.Reader(), CodeEngine, "D died")
	answers(lost, reset)
	for name, c := range map[string]*Coordinator{"its first steps are refused": first, "a stream was lost first": lost} {
		if o := c.Outcome(); o == nil || o.Code != CodeReset || o.Committed || !o.Sticks() {
			t.Errorf("%s: the outcome is %+v", name, o)
		}
	}
}

// A commit whose answer is lost may have let an earlier reader deliver. What ends the
// handoff then ends it without asking for a proof, so the closers' answers decide
// whether its key may be sampled again.
func TestAKeyIsFreeOnlyByAProof(t *testing.T) {
	proofs := map[string]struct {
		target, source Verdict
		spent          bool
	}{
		"nobody can tell":         {VerdictUnknown, VerdictUnknown, true},
		"TP said yes":             {VerdictUnknown, VerdictOver, true},
		"TD committed":            {VerdictCommitted, VerdictOver, true},
		"TD closed it":            {VerdictClosed, VerdictUnknown, false},
		"TP never said yes":       {VerdictUnknown, VerdictClosed, false},
		"TD closed it, said once": {VerdictClosed, VerdictOver, false},
	}
	ends := map[string]func(*Coordinator){
		"a cancel":              (*Coordinator).Cancel,
		"a reader that is gone": func(c *Coordinator) { c.StreamEnded(CodeGone, "") },
	}
	for by, end := range ends {
		for name, p := range proofs {
			c := NewCoordinator(testPlan(1, 1), Policy{})
			a := c.Plan().Attempt
			for _, s := range []Step{StepReserve, StepPrefill, StepTransfer} {
				c.Step(Result{Step: s, Attempt: a})
			}
			c.Commands()
			c.NameReader(Reader{"g1", 1, 2}) // the commit is under way; the first reader may have heard of it
			end(c)
			c.Step(Result{Step: StepCommit, Attempt: a, Code: CodeUnavailable})
			answers(c, func(cmd Command) Result {
				r := Result{Step: cmd.Step, Attempt: a}
				switch cmd.Step {
				case StepUndoTransfer:
					r.Verdict = p.target
				case StepUndoPrefill:
					r.Verdict = p.source
				}
				return r
			})
			if !c.Ended() || c.Outcome().Sticks() != p.spent {
				t.Errorf("%s, %s: %+v, want spent %t", by, name, c.Outcome(), p.spent)
			}
		}
	}
}

// A reader's word is a proof as well, if history names it still: the same ends free the
// key by it, and by no other reader's, nor by silence.
func TestTheWordOfItsReaderAloneFreesAKey(t *testing.T) {
	for name, x := range map[string]struct {
		says  Verdict
		after bool // another reader is named then
		spent bool
	}{
		"it gave the attempt up": {says: VerdictClosed},
		"an earlier reader did":  {says: VerdictClosed, after: true, spent: true},
		"it does not answer":     {says: VerdictUnknown, spent: true},
		"another came, unasked":  {says: VerdictUnknown, after: true, spent: true},
	} {
		c := NewCoordinator(testPlan(1, 1), Policy{})
		a := c.Plan().Attempt
		for _, s := range []Step{StepReserve, StepPrefill, StepTransfer} {
			c.Step(Result{Step: s, Attempt: a})
		}
		c.Step(Result{Step: StepCommit, Attempt: a, Code: CodeUnavailable})
		c.Step(Result{Step: StepUndoTransfer, Attempt: a, Verdict: VerdictUnknown})
		c.Step(Result{Step: StepUndoPrefill, Attempt: a, Verdict: VerdictOver})
		c.Step(Result{Step: StepAskReader, Attempt: a, Verdict: x.says, Reader: c.Reader()})
		if x.after {
			c.NameReader(Reader{"g1", 1, 2})
		}
		c.Commands()
		c.Cancel()
		for _, s := range []Step{StepPlace, StepAwaitReader} { // one of them was on its way
			c.Step(Result{Step: s, Attempt: a, Code: CodeUnavailable})
		}
		answers(c, func(cmd Command) Result { return Result{Step: cmd.Step, Attempt: a, Verdict: VerdictUnknown} })
		if o := c.Outcome(); !c.Ended() || o.Code != CodeCancelled || o.Sticks() != x.spent {
			t.Errorf("%s: %s %+v, want spent %t", name, c.Phase(), o, x.spent)
		}
	}
}
