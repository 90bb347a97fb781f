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
