package explore

import "github.com/surehand/surehand/contracts/handoff"

// normalise does what is not worth an interleaving of its own, and forgets what
// can have no effect any more, so that states that behave alike are one.
func (w *world) normalise() {
	for a := range many {
		w.freeSource(a)
		w.freeTarget(a)
		w.forgetMessages(a)
		w.forgetMemory(a)
	}
}

// forgetMessages takes out messages that every receiver would refuse for good.
func (w *world) forgetMessages(a int) {
	dead := func(ms ...message) {
		for _, m := range ms {
			w.soup &^= 1 << (uint(m)*many + uint(a))
		}
	}
	if w.TwoGateways || w.Faults&StartUnknown != 0 {
		return // whether a gateway undid its head start is read off the messages
	}
	r, td := w.targetOf(a), w.td[w.at[a]]
	otherLife := r == nil && td.Incarnation != w.plans[a].D.Incarnation && !w.Omit.Has(handoff.RuleIncarnation)
	if otherLife || r != nil && r.State.Final() {
		dead(msgOpen, msgCommit, msgUndo, msgRelease, msgYes)
	}
	s := w.sourceOf(a)
	otherLife = s == nil && !w.grantorLives() && !w.Omit.Has(handoff.RuleIncarnation)
	if otherLife || s != nil && s.State == handoff.SourceClosed {
		dead(msgPrefill, msgUndoP, msgReleaseP)
		if otherLife || s.Freed {
			dead(msgStopped)
		}
	}
	for g, m := range []message{msgGiveUp0, msgGiveUp1} {
		if x := &w.gw[g]; x.dead || x.reading.State(w.plans[a].Attempt) != handoff.ReaderUndecided {
			dead(m)
		}
	}
}

// forgetMemory drops contents that nobody can read any more.
func (w *world) forgetMemory(a int) {
	t := w.targetOf(a)
	canRead := t != nil && (t.State == handoff.TargetOpened || t.State == handoff.TargetRunning) || t == nil || w.wire[a] != [2]uint8{}
	if s := w.sourceOf(a); w.source[a][0] == garbage && (!w.Local || !canRead) && w.wire[a] == [2]uint8{} && (s == nil || s.Freed) {
		w.source[a], w.known[a] = [2]handoff.Origin{}, 0
		if t == nil || t.State > handoff.TargetLanded {
			w.digest[a] = [2]handoff.Origin{}
		}
	}
}
