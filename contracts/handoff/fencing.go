package handoff

// fail begins the fence: each place that could still let the attempt become
// visible is asked to close it, softly (rules 4 and 5). The ledger's promise
// ends only once it is known that nothing is adopted.
func (c *Coordinator) fail(r Result) {
	c.failure = &r
	c.phase = PhaseFencing
	c.issue(StepUndoTransfer, StepUndoPrefill)
	if c.Omit.Has(RuleFence) {
		c.target, c.source = VerdictClosed, VerdictClosed // sent, so taken for done
		c.next()
	}
}

func (c *Coordinator) undone(r Result) {
	switch r.Step {
	case StepUndoTransfer:
		if c.target != VerdictClosed { // which is final, whatever a repeat comes to
			c.target = r.Verdict
		}
		if c.phase == PhaseClosing && (r.Verdict == VerdictCommitted || r.Verdict == VerdictOver) {
			c.sawCommit()
		}
	case StepUndoPrefill:
		if c.source != VerdictClosed {
			c.source = r.Verdict
		}
	}
	c.judge()
}

// wasCommitted says whether the attempt was visible once, be it over by now: such
// an outcome sticks, and its key is not sampled again (S13).
func (c *Coordinator) wasCommitted() bool {
	return c.target == VerdictCommitted || c.target == VerdictOver || c.failure.Code == CodeAborted
}

// judge decides what follows a failed attempt as its closers answer.
func (c *Coordinator) judge() {
	if c.phase != PhaseFencing || c.waits(StepAskReader) {
		return
	}
	reset := c.failure.Code == CodeReset
	switch {
	case reset && c.waits(StepUndoTransfer, StepUndoPrefill): // rule 13: it closes what is not committed and plans nothing
	case reset && (c.Policy.Unasked || c.wasCommitted()):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeReset, Detail: c.failure.Detail, Committed: c.wasCommitted()})
	case reset && c.asked == VerdictCommitted:
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeReset, Detail: c.failure.Detail, Committed: true})
	case c.asked == VerdictClosed: // the reader's word stands whatever D did
		c.next()
	case c.target == VerdictCommitted, c.asked == VerdictCommitted:
		c.decode() // the asker adopts the commit
	case c.target == VerdictClosed, c.source == VerdictClosed:
		c.next() // one proof is enough; the other closer's answer decides nothing more
	case c.waits(StepUndoTransfer, StepUndoPrefill):
	case c.givesUp() && (c.Policy.Unasked || c.wasCommitted()):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: c.failure.Code, Detail: c.failure.Detail, Committed: c.wasCommitted()})
	case c.waits(StepAwaitReader):
	case c.asked == VerdictNone, c.asking != c.reader:
		c.ask()
	case !c.awaited: // a client that comes again names a reader that can answer
		c.awaited = true
		c.issue(StepAwaitReader)
	case c.Omit.Has(RuleReaderAwaited):
		c.next() // nobody came, so nobody is taken to have been there
	default:
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeOutcomeUnknown, Committed: c.wasCommitted(),
			Detail: "after " + c.failure.Code.String() + " in " + string(c.failure.Step) + ": neither TD, TP nor the reader can prove the attempt closed"})
	}
}

// ask puts the question of rule 5(c) to the reader that history names now.
func (c *Coordinator) ask() {
	c.asking, c.awaited = c.reader, false
	c.issue(StepAskReader)
}

// givesUp says that no other epoch would follow even a proved closure.
func (c *Coordinator) givesUp() bool {
	a := c.failure.Code.Advice()
	return a == GiveUp || a == CallOperator || c.plan.Attempt.Epoch >= min(c.resumed+c.Policy.MaxEpochs, MaxEpoch)
}

// next plans another epoch, or ends with the failure.
func (c *Coordinator) next() {
	switch {
	case c.cancelled && !c.Omit.Has(RuleCancelBeforePlan):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled})
	case c.givesUp() && c.isVoid() && !c.Policy.AnyWord:
		c.ask() // no plan follows that would find it void, and the new reader may be delivering
	case c.givesUp():
		c.end(Outcome{Attempt: c.plan.Attempt, Code: c.failure.Code, Detail: c.failure.Detail})
	default:
		c.phase = PhasePlacing
		c.issue(StepPlace)
	}
}

func (c *Coordinator) placed(r Result) {
	if c.phase != PhasePlacing {
		return
	}
	placed := r.Code == CodeNone && r.Next != nil
	switch {
	case c.cancelled && !c.Omit.Has(RuleCancelBeforePlan):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled})
	case r.Code == CodeReset: // rule 13, whatever failed before: what the run had come to is forgotten
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeReset, Detail: r.Detail})
	case c.isVoid() && (placed || !c.Policy.AnyWord): // the new reader may be delivering, whether or not a plan would follow
		c.phase = PhaseFencing
		c.ask()
	case !placed:
		c.end(Outcome{Attempt: c.plan.Attempt, Code: c.failure.Code, Detail: c.failure.Detail + "; no other placement: " + r.Detail})
	case !c.follows(*r.Next):
		c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeInternal, Detail: "placement gave a plan that does not follow this one"})
	default:
		c.supersede(*r.Next)
	}
}

// follows says whether p may be the plan of the next epoch: the same handoff
// and body, another nonce.
func (c *Coordinator) follows(p Plan) bool {
	a := c.plan.Attempt
	return p.Attempt.Handoff == a.Handoff && p.Attempt.Epoch == a.Epoch+1 && p.Attempt.Nonce != a.Nonce &&
		p.BodyDigest == c.plan.BodyDigest && p.Validate() == nil
}

// supersede begins the next epoch. Its plan names the reader that history names.
func (c *Coordinator) supersede(p Plan) {
	c.issue(StepUndoReserve)
	if c.target != VerdictClosed { // rule 5(c)6: a superseded attempt that may decode is waste; end it
		c.release(StepUndoTransfer)
	}
	p.Reader = c.reader
	c.begin(p)
}

// isVoid says that the proof is the word of a reader that history names no more (rule 5c).
func (c *Coordinator) isVoid() bool {
	return c.onlyReader() && c.askedOf != c.reader && !c.Omit.Has(RuleReaderSame)
}

// onlyReader says that the proof rests on the reader's word alone.
func (c *Coordinator) onlyReader() bool {
	return c.target != VerdictClosed && c.source != VerdictClosed
}
