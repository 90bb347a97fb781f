package explore

import "github.com/surehand/surehand/contracts/handoff"

// emit receives one successor; isFault marks steps that only a fault makes.
type emit func(x act, isFault bool, n *world)

// next gives every successor of w, in a fixed order.
func (w *world) next(out emit) {
	w.startSteps(out)
	for i := range w.wk {
		if w.wk[i].coord != nil {
			w.signalSteps(i, out)
			w.taskSteps(i, out)
		}
	}
	for a := range many {
		w.sourceSteps(a, out)
		w.targetSteps(a, out)
		w.leaseSteps(a, out)
	}
	for g := range w.gw {
		if !w.gw[g].dead {
			w.readerSteps(g, out)
		}
	}
	w.faultSteps(out)
}

// startSteps: Start is accepted for one gateway; the other undoes its head start.
func (w *world) startSteps(out emit) {
	rivals := 1
	if w.TwoGateways {
		rivals = 2
	}
	for g := range rivals {
		a := [2]int{e1, e1b}[g]
		if !w.started && !w.over && !w.gw[g].dead {
			n := w.fork()
			n.start(g)
			out(act{kind: actStart, i: uint8(g)}, false, n)
		}
		loser := w.started && int(w.named.gateway) != g && w.named.number == 1
		unknown := w.Faults&StartUnknown != 0
		if (loser && w.TwoGateways || unknown) && !w.sent(msgUndo, a) {
			n := w.fork()
			n.send(msgUndo, a)
			n.send(msgUndoP, a)
			if !n.started && !loser && !w.TwoGateways {
				m := *n
				m.over = true // Start failed for certain
				out(act{kind: actLoserUndoes, i: uint8(g), a: uint8(a)}, false, &m)
			}
			out(act{kind: actLoserUndoes, i: uint8(g), a: uint8(a)}, false, n)
		}
	}
}

// signalSteps: the current worker begins a workflow task and sees what history
// has, the client's cancel first.
func (w *world) signalSteps(i int, out emit) {
	x := &w.wk[i]
	if i != int(w.current) {
		return
	}
	seen := func(kind actKind, f func(n *world, y *worker)) {
		n := w.fork()
		y := n.mutable(i)
		f(n, y)
		n.run(i)
		if y.coord != nil {
			n.hist = *y
		}
		out(act{kind: kind, i: uint8(i), a: uint8(w.index(x.coord.Plan().Attempt))}, false, n)
	}
	if w.cancelled && !x.cancel {
		seen(actSeesCancel, func(_ *world, y *worker) { y.cancel = true; y.coord.Cancel() })
	}
	if w.moved && x.coord.Outcome() == nil {
		seen(actName, func(n *world, y *worker) { n.name(y) })
		if a := w.index(x.coord.Plan().Attempt); w.Early && w.gw[g1].told&bit(a) == 0 {
			n := w.fork()
			n.tell(a)
			out(act{kind: actTellEarly, i: uint8(i), a: uint8(a)}, false, n)
		}
	}
	if w.end != endNone {
		seen(actSeesEnd, func(n *world, y *worker) { n.seeEnd(y) })
	}
	a := w.index(x.coord.Plan().Attempt)
	if x.coord.Phase() == handoff.PhaseDecoding && w.visible&bit(a) == 0 && w.end == endNone {
		seen(actWatch, func(_ *world, y *worker) { y.coord.StreamEnded(handoff.CodeStreamBroken, "") })
	}
}

// hear has y take what history holds, in the order of workflows: the client's
// cancel, then the reader's report. A re-attach comes behind both.
func (w *world) hear(y *worker) {
	if w.cancelled && !y.cancel && !w.Omit.Has(handoff.RuleCancelBeforePlan) {
		y.cancel = true
		y.coord.Cancel()
	}
	if w.end != endNone {
		w.seeEnd(y)
	}
}

// name: the current worker takes from history that the client came again at
// gateway 1, and has that told the newest planned attempt. Until then gateway 1
// reads nothing; from then on what gateway 0 reports is dropped. A re-attach that
// no worker has taken yet is one that is still on its way.
func (w *world) name(y *worker) {
	w.hear(y)
	w.moved = false
	w.named = reader{g1, w.gw[g1].incarnation, w.named.number + 1}
	y.coord.NameReader(w.named.handoff())
	if y.coord.Outcome() != nil {
		return // nobody is told any more
	}
	a := w.index(y.coord.Plan().Attempt)
	if w.Omit.Has(handoff.RuleReaderNewest) {
		a = int(w.winner)
	}
	w.tell(a)
}

// tell has gateway 1 hear of the attempt that it reads.
func (w *world) tell(a int) {
	if !w.Omit.Has(handoff.RuleReaderNewest) {
		w.reading(g1).Newest(w.plans[a].Attempt)
	}
	w.gw[g1].told |= bit(a)
}

// seeEnd applies the reader's report; one about another attempt is dropped.
func (w *world) seeEnd(y *worker) {
	end := w.end
	w.end = endNone
	if w.plans[w.endOf].Attempt != y.coord.Plan().Attempt {
		return
	}
	switch end {
	case endWhole:
		y.coord.StreamEnded(handoff.CodeNone, "")
	case endBroken:
		y.coord.StreamEnded(handoff.CodeStreamBroken, "")
	case endLost:
		y.coord.StreamLost(w.endBy.handoff(), handoff.CodeEngine, "")
	}
}

// taskSteps: each command of worker i gets its result, or none.
func (w *world) taskSteps(i int, out emit) {
	for k, t := range w.wk[i].tasks {
		done := func(kind actKind, v handoff.Verdict, f func(n *world, y *worker)) {
			n := w.fork()
			y := n.mutable(i)
			y.drop(k)
			f(n, y)
			if y.coord != nil {
				n.run(i)
			}
			out(act{kind: kind, i: uint8(i), a: t.attempt, p: uint8(t.step), v: v}, false, n)
		}
		with := func(code handoff.Code) func(*world, *worker) {
			return func(n *world, y *worker) { n.result(y, t, code) }
		}
		isReset := w.reset && i == int(w.current) && !w.Omit.Has(handoff.RuleReset)
		switch {
		case t.step == kindPlace:
			w.placeSteps(i, k, isReset, out)
		case t.step == kindAwait: // another reader is named, or the time is over: either may come first
			done(actAwaited, 0, with(handoff.CodeNone))
		case isReset && (t.step == kindMove || t.step == kindCommit):
			done(actMoveReset, 0, with(handoff.CodeReset))
		case t.step == kindMove:
			if r := w.targetOf(int(t.attempt)); r != nil && (r.State == handoff.TargetValidated || r.State == handoff.TargetCommitted) ||
				r != nil && r.State == handoff.TargetVerified && w.Omit.Has(handoff.RuleQuestion) {
				done(actMoved, 0, with(handoff.CodeNone))
			}
			if free := !w.movable(int(t.attempt)); free || w.mayLose() {
				done(actMoveFails, 0, func(n *world, y *worker) { n.lose(free); n.result(y, t, handoff.CodeUnavailable) })
			}
		case t.step == kindCommit:
			done(actCommitAnswered, 0, func(n *world, y *worker) { n.result(y, t, n.commit(int(t.attempt))) })
			if w.mayLose() {
				done(actCommitSilent, 0, func(n *world, y *worker) { n.lose(false); n.result(y, t, handoff.CodeUnavailable) })
			}
		default:
			w.closingSteps(i, k, t, done, out)
		}
	}
}

// closingSteps: an undo step or the question to the reader.
func (w *world) closingSteps(i, k int, t task, done func(actKind, handoff.Verdict, func(*world, *worker)), out emit) {
	if t.verdict != handoff.VerdictNone {
		done(actUsed, t.verdict, func(n *world, y *worker) { n.verdict(y, t, t.verdict) })
		return
	}
	probe := w.fork()
	v := probe.ask(t)
	switch {
	case v == handoff.VerdictUnknown: // as silence
	case w.SlowAnswers:
		y := &probe.wk[i]
		y.tasks = append([]task(nil), y.tasks...)
		y.tasks[k].verdict = v
		out(act{kind: actAsked, i: uint8(i), a: t.attempt, p: uint8(t.step), v: v}, false, probe)
	default:
		done(actAsked, v, func(n *world, y *worker) { n.verdict(y, t, n.ask(t)) })
	}
	if free := v == handoff.VerdictUnknown; free || w.mayLose() {
		done(actSilent, handoff.VerdictUnknown, func(n *world, y *worker) { n.lose(free); n.verdict(y, t, handoff.VerdictUnknown) })
	}
}

// mayLose says whether one more answer may be lost.
func (w *world) mayLose() bool { return !w.Bounded || !w.begun || w.lost < w.Losses }

func (w *world) lose(free bool) {
	if w.Bounded && !free {
		w.lost++
	}
}

// movable says whether a may still become validated, so that a worker which
// waits for that is answered; else it hears of a failure.
func (w *world) movable(a int) bool {
	t, s := w.targetOf(a), w.sourceOf(a)
	switch {
	case t != nil && t.State >= handoff.TargetValidated:
		return !t.State.Final()
	case s != nil && s.State == handoff.SourceClosed || s == nil && !w.grantorLives():
		return false
	case t == nil:
		return w.td[w.at[a]].Incarnation == w.plans[a].D.Incarnation && w.roomAt(w.at[a])
	}
	return s != nil || w.roomP()
}

// placeSteps: the current worker's task completes with *place* scheduled, and
// the plan that it gives is history. What history has by then is seen first.
func (w *world) placeSteps(i, k int, isReset bool, out emit) {
	current := i == int(w.current)
	if !current && !w.Omit.Has(handoff.RulePlanRecorded) {
		return
	}
	n := w.fork()
	y := n.mutable(i)
	if current {
		n.hear(y)
	}
	t := y.tasks[k]
	y.drop(k)
	next := e2
	if w.reset || w.Omit.Has(handoff.RulePlanRecorded) && i == 1 {
		next = e2b // another run, another worker: another plan
	}
	r := handoff.Result{Step: handoff.StepPlace, Attempt: w.plans[t.attempt].Attempt, Next: &n.plans[next]}
	if isReset {
		r.Code, r.Next = handoff.CodeReset, nil
	}
	y.coord.Step(r)
	if y.coord.Plan().Attempt == n.plans[next].Attempt {
		n.fenced |= n.gw[n.named.gateway].gave & bit(int(t.attempt))
		if n.cancelled {
			n.late |= bit(next)
		}
		n.gw[n.named.gateway].told |= bit(next)
	}
	n.run(i)
	if current && y.coord != nil && !w.Omit.Has(handoff.RulePlanRecorded) {
		n.hist = *y
	}
	out(act{kind: actPlaced, i: uint8(i), a: uint8(next)}, false, n)
}

// commit delivers Commit and remembers what was said.
func (w *world) commit(a int) handoff.Code {
	ans := w.stepTarget(handoff.TargetCommit, a, nil)
	if r := w.targetOf(a); r != nil {
		w.events.answers = append(w.events.answers, handoff.Answer{Attempt: w.plans[a].Attempt,
			Committed: ans.Code == handoff.CodeNone && ans.State == handoff.TargetCommitted, State: r.State})
		if r.State == handoff.TargetCommitted && ans.Changed {
			w.visible |= bit(w.memory(a))
			w.ever |= bit(w.memory(a))
		}
	}
	return ans.Code
}

// ask delivers a closing step's message and reads what the answer proves.
func (w *world) ask(t task) handoff.Verdict {
	a := int(t.attempt)
	switch t.step {
	case kindUndoTransfer:
		return w.closeTarget(a, t.hard)
	case kindUndoPrefill:
		return w.closeSource(a, t.hard)
	}
	return w.giveUp(t.to, a)
}

func (w *world) closeTarget(a int, hard bool) handoff.Verdict {
	e := handoff.TargetUndo
	if hard {
		e = handoff.TargetRelease
	}
	was := w.targetOf(a)
	ans := w.stepTarget(e, a, nil)
	w.pages(a)
	if !hard && was != nil && was.State == handoff.TargetCommitted && ans.Changed {
		w.events.undone = append(w.events.undone, w.plans[a].Attempt)
	}
	v := handoff.TargetVerdict(ans)
	if ans.Code == handoff.CodeStaleIncarnation && w.Omit.Has(handoff.RuleStaleIncarnationMute) {
		return handoff.VerdictClosed
	}
	if v == handoff.VerdictClosed {
		w.refused |= bit(w.memory(a))
	}
	return v
}

func (w *world) closeSource(a int, hard bool) handoff.Verdict {
	e := handoff.SourceUndo
	if hard {
		e = handoff.SourceRelease
	}
	ans := w.stepSource(e, a, nil)
	v := handoff.SourceVerdict(ans)
	if v == handoff.VerdictOver && w.Omit.Has(handoff.RuleNeverValidated) {
		return handoff.VerdictClosed
	}
	return v
}

// giveUp asks a reader. A dead process, or another life of it, is silence.
func (w *world) giveUp(to reader, a int) handoff.Verdict {
	g := &w.gw[to.gateway]
	switch {
	case g.dead:
		if w.Omit.Has(handoff.RuleReaderSilence) {
			return handoff.VerdictClosed
		}
		return handoff.VerdictUnknown
	case g.incarnation != to.incarnation && !w.Omit.Has(handoff.RuleReaderIncarnation):
		return handoff.VerdictUnknown
	}
	s := w.reading(int(to.gateway)).GiveUp(w.plans[a].Attempt)
	if s == handoff.ReaderGivenUp && !w.Omit.Has(handoff.RuleReaderAnswers) {
		w.gw[to.gateway].gave |= bit(a)
	}
	return handoff.ReaderVerdict(s)
}

// pages brings the flag page to what TD's table says: an abort ends visibility.
func (w *world) pages(a int) {
	if r := w.targetOf(a); r != nil && r.State.Final() {
		w.visible &^= bit(w.memory(a))
	}
}
