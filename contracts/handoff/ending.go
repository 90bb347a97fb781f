package handoff

// Cancel is the client's cancel. Everything planned is released; TD's order of
// Commit and Release decides, and the answer says which (rule 18).
func (c *Coordinator) Cancel() {
	if c.cancelled || c.outcome != nil {
		return
	}
	c.cancelled = true
	if c.phase == PhasePlacing && c.Omit.Has(RuleCancelBeforePlan) {
		return
	}
	c.closeWith(Outcome{Attempt: c.plan.Attempt, Committed: c.committed, Code: CodeCancelled})
	c.release(StepUndoTransfer, StepUndoPrefill, StepUndoReserve)
}

// StreamEnded is the reader's report that the stream is over: whole, or broken
// with a code. It is history (a signal) before it is acted on, so a release may
// follow. A reader delivers one attempt only, so the caller drops a report that
// names another attempt than the present one. Whole or broken after its first
// token, it was committed, though the answer that says so may never come.
func (c *Coordinator) StreamEnded(code Code, detail string) {
	delivered := code == CodeNone || code == CodeStreamBroken
	if c.outcome != nil {
		if delivered {
			c.sawCommit()
		}
		return
	}
	c.closeWith(Outcome{Attempt: c.plan.Attempt, Committed: c.committed || delivered, Code: code, Detail: detail})
	if code == CodeNone {
		c.release(StepUndoReserve) // D ended the decode by itself, P was freed by the transfer's end
		return
	}
	c.release(StepUndoTransfer, StepUndoPrefill, StepUndoReserve)
}

// Replace gives the present attempt up for another epoch, as an operator asked,
// if it is on its way: it is fenced like any that failed, and one that turns out
// committed is adopted. False when there is nothing to replace.
func (c *Coordinator) Replace(detail string) bool {
	if c.outcome != nil || c.cancelled || c.phase != PhaseMoving && c.phase != PhaseCommitting {
		return false
	}
	c.fail(Result{Step: StepPlace, Attempt: c.plan.Attempt, Code: CodeClosed, Detail: detail})
	return true
}

// StreamResumes is the reader's report that D's stream broke after tokens of it
// were delivered, that the reader delivers no more of the attempt, and that its
// client asked to go on under another epoch with an explicit resume record (S2,
// S10). The reader's word closes the attempt as in StreamLost; the key is spent.
func (c *Coordinator) StreamResumes(by Reader, code Code, detail string) {
	if c.outcome != nil || c.phase == PhasePlacing {
		return
	}
	c.delivered, c.resumed = true, c.plan.Attempt.Epoch
	c.StreamLost(by, code, detail)
}

// endResumed ends a stream that could not go on: broken, after what was
// delivered, and everything released.
func (c *Coordinator) endResumed(o Outcome) {
	if o.Code != CodeCancelled && o.Code != CodeOutcomeUnknown && o.Code != CodeReset {
		o.Code, o.Detail = CodeStreamBroken, "not resumed: "+o.Detail
	}
	c.closeWith(o)
	c.release(StepUndoTransfer, StepUndoPrefill, StepUndoReserve)
}

// StreamLost is the reader's report that D's stream broke before the first
// token, and that the reader gave the attempt up: rule 5(c) proves it closed,
// whatever became of D or of a commit on its way, so another epoch may be planned.
func (c *Coordinator) StreamLost(by Reader, code Code, detail string) {
	if c.outcome != nil || c.phase == PhasePlacing {
		return
	}
	fresh := c.phase != PhaseFencing
	c.asked, c.askedOf = VerdictClosed, by
	if fresh {
		c.committed = false
		c.target, c.source = VerdictNone, VerdictNone // an adopted commit is no answer to this fence
		c.fail(Result{Step: StepDecode, Attempt: c.plan.Attempt, Code: code, Detail: detail})
	}
	c.judge()
	c.settle()
}
