package handoff

// cell of a transition table: where to go, or why not. The zero cell is "no
// such transition" and answers CodeInternal, so a forgotten pair is loud.
type cell[S any] struct {
	to   S
	code Code // CodeNone with ok: move; other: refuse and stay
	ok   bool
}

func move[S any](to S) cell[S]     { return cell[S]{to: to, ok: true} }
func refuse[S any](c Code) cell[S] { return cell[S]{code: c, ok: true} }

type targetCell = cell[TargetState]

// targetTable is the whole protocol of a target; guards and effects stand
// beside Step. Rows are events, columns states.
var targetTable = buildTargetTable()

func buildTargetTable() (t [targetEvents][targetStates]targetCell) {
	row := func(e TargetEvent, f func(TargetState) targetCell) {
		for s := TargetUnknown; s < targetStates; s++ {
			t[e][s] = f(s)
		}
	}
	// final answers the present: closed and aborted are for ever (rule 8).
	final := func(otherwise func(TargetState) targetCell) func(TargetState) targetCell {
		return func(s TargetState) targetCell {
			switch s {
			case TargetClosed:
				return refuse[TargetState](CodeClosed)
			case TargetAborted:
				return refuse[TargetState](CodeAborted)
			}
			return otherwise(s)
		}
	}
	notYet := refuse[TargetState](CodeNotReady)
	only := func(from, to TargetState) func(TargetState) targetCell {
		return final(func(s TargetState) targetCell {
			switch {
			case s == from:
				return move(to)
			case s > from:
				return move(s) // a repeat: present state, no effect
			}
			return notYet
		})
	}
	row(TargetOpen, final(func(s TargetState) targetCell {
		if s == TargetUnknown {
			return move(TargetOpened)
		}
		return move(s)
	}))
	row(TargetPost, final(func(s TargetState) targetCell {
		switch s {
		case TargetOpened, TargetRunning:
			return move(TargetRunning)
		case TargetUnknown:
			return notYet
		}
		return refuse[TargetState](CodeConflict) // all is landed: a write now would be stale
	}))
	row(TargetLand, stay) // the effect counts; the last landing moves Running to Landed
	row(TargetFail, stay)
	row(TargetDestroy, stay)
	row(TargetVerify, only(TargetLanded, TargetVerified))
	row(TargetMisverify, final(func(s TargetState) targetCell {
		switch s {
		case TargetLanded, TargetRunning: // several pieces may be bad
			return move(TargetRunning)
		}
		return notYet
	}))
	row(TargetAsk, final(func(s TargetState) targetCell {
		if s == TargetVerified {
			return move(TargetVerified)
		}
		return notYet
	}))
	row(TargetYes, only(TargetVerified, TargetValidated))
	row(TargetCommit, only(TargetValidated, TargetCommitted))
	close := func(committed TargetState, unknown targetCell) func(TargetState) targetCell {
		return func(s TargetState) targetCell {
			switch s {
			case TargetUnknown:
				return unknown
			case TargetClosed, TargetAborted:
				return move(s)
			case TargetCommitted:
				return move(committed)
			}
			return move(TargetClosed)
		}
	}
	row(TargetUndo, close(TargetCommitted, move(TargetClosed)))       // rules 4 and 7
	row(TargetRelease, close(TargetAborted, move(TargetClosed)))      // rule 7
	row(TargetExpire, close(TargetAborted, move(TargetUnknown)))      // rule 14
	row(TargetSupersede, close(TargetCommitted, move(TargetUnknown))) // rule 6
	row(TargetAbandon, close(TargetCommitted, move(TargetUnknown)))
	row(TargetNo, close(TargetCommitted, move(TargetUnknown)))
	row(TargetFinish, close(TargetAborted, notYet))
	row(TargetRenew, final(func(s TargetState) targetCell {
		if s == TargetUnknown {
			return notYet // *closed* would be a proof, and an unknown attempt proves nothing
		}
		return move(s)
	}))
	return t
}

func stay(s TargetState) targetCell { return move(s) }
