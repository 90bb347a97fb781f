package explore

import "github.com/surehand/surehand/contracts/handoff"

// readerSteps: gateway g reads a token, tests and records, writes: three steps,
// so that it may pause between any two; and it reports to history.
func (w *world) readerSteps(g int, out emit) {
	x := &w.gw[g]
	simple := func(kind actKind, a, p int, f func(n *world)) {
		n := w.fork()
		f(n)
		out(act{kind: kind, i: uint8(g), a: uint8(a), p: uint8(p)}, false, n)
	}
	for a := range many {
		attempt := w.plans[a].Attempt
		state := x.reading.State(attempt)
		busy := x.held != 0 || x.cleared != 0
		if !busy && x.told&bit(a) != 0 && x.wrote&bit(a) == 0 && w.ever&bit(w.memory(a)) != 0 && state != handoff.ReaderGivenUp {
			simple(actRead, a, 0, func(n *world) {
				n.gw[g].held = uint8(a + 1)
				if !n.Readers {
					n.test(g)
					n.writeOut(g)
				}
			})
		}
		if w.sent([2]message{msgGiveUp0, msgGiveUp1}[g], a) && state == handoff.ReaderUndecided &&
			(x.incarnation == 1 || w.Omit.Has(handoff.RuleReaderIncarnation)) && !w.Omit.Has(handoff.RuleReaderAnswers) {
			simple(actGivesUp, a, 0, func(n *world) { n.giveUp(reader{uint8(g), x.incarnation, 0}, a) })
		}
	}
	if x.held != 0 {
		simple(actTest, int(x.held-1), 0, func(n *world) { n.test(g) })
	}
	if x.cleared != 0 {
		simple(actWrite, int(x.cleared-1), 0, func(n *world) { n.writeOut(g) })
	}
	w.reportSteps(g, simple)
}

// write hands the token to the client, if it listens to this gateway.
// test asks the record for leave and drops the token that gets none.
func (w *world) test(g int) {
	x := &w.gw[g]
	a := x.held
	x.held = 0
	if w.reading(g).Deliver(w.plans[a-1].Attempt) {
		x.cleared = a
	}
}

// writeOut gives the token to the client, if it listens to this gateway.
func (w *world) writeOut(g int) {
	x := &w.gw[g]
	if x.cleared == 0 {
		return
	}
	a := int(x.cleared - 1)
	x.cleared = 0
	x.wrote |= bit(a)
	if int(w.conn) != g && !w.Omit.Has(handoff.RuleClientLeaves) {
		return
	}
	w.twice = w.twice || w.got&bit(a) != 0
	w.got |= bit(a)
}

// isReader says whether gateway g is whom history names, number included.
func (w *world) isReader(g int) bool {
	return int(w.named.gateway) == g && w.named.incarnation == w.gw[g].incarnation && !w.gw[g].dead
}

// reportSteps: the reader tells history how the stream of the present attempt
// ended: whole, or lost before its first token, which it then gave up.
func (w *world) reportSteps(g int, simple func(actKind, int, int, func(*world))) {
	if !w.isReader(g) || w.over || w.hist.coord == nil || w.hist.coord.Outcome() != nil || w.end != endNone {
		return
	}
	x := &w.gw[g]
	a := w.index(w.hist.coord.Plan().Attempt)
	state := x.reading.State(w.plans[a].Attempt)
	report := func(end uint8) {
		simple(actReport, a, int(end), func(n *world) { n.end, n.endOf, n.endBy = end, uint8(a), n.named })
	}
	if x.wrote&bit(a) != 0 {
		report(endWhole)
		return
	}
	seen := w.ever&bit(w.memory(a)) != 0 && w.visible&bit(w.memory(a)) == 0
	busy := x.held != 0 || x.cleared != 0
	switch {
	case x.told&bit(a) == 0 || busy || state == handoff.ReaderDelivering:
	case state == handoff.ReaderGivenUp:
		report(endLost)
	case seen:
		simple(actReport, a, endLost, func(n *world) {
			if n.giveUp(n.named, a) == handoff.VerdictClosed {
				n.end, n.endOf, n.endBy = endLost, uint8(a), n.named
			}
		})
	}
}
