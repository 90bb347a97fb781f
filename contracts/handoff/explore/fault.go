package explore

import (
	"math/bits"

	"github.com/surehand/surehand/contracts/handoff"
)

// leaseSteps: leases end when nobody renews them, and in some scenarios though
// somebody would.
func (w *world) leaseSteps(a int, out emit) {
	if w.memory(a) != a {
		return
	}
	end := func(kind actKind, wanted bool, allowed fault, f func(n *world)) {
		if wanted && w.Faults&allowed == 0 {
			return
		}
		n := w.fork()
		f(n)
		out(act{kind: kind, a: uint8(a)}, wanted, n)
	}
	if r := w.targetOf(a); r != nil && r.State.Live() {
		expire := func(n *world) {
			n.stepTarget(handoff.TargetExpire, a, nil)
			n.pages(a)
		}
		if r.State == handoff.TargetCommitted {
			end(actExpireDecode, w.renewed(a), LeaseDecode, expire)
		} else {
			end(actExpireTarget, w.wanted(a), LeaseD, expire)
		}
	}
	if r := w.sourceOf(a); r != nil && r.State != handoff.SourceClosed {
		t := w.targetOf(a)
		pulling := t != nil && t.State.Live() && t.State < handoff.TargetValidated
		end(actExpireSource, w.wanted(a) || pulling, LeaseP, func(n *world) { n.stepSource(handoff.SourceExpire, a, nil) })
	}
}

// wanted says whether a worker, or a gateway before Start, goes on with a.
func (w *world) wanted(a int) bool {
	if !w.started && !w.over {
		return a == e1 || a == e1b && w.TwoGateways
	}
	for i := range w.wk {
		if c := w.wk[i].coord; c != nil && w.memory(w.index(c.Plan().Attempt)) == a {
			return true
		}
	}
	c := w.hist.coord
	return c != nil && w.memory(w.index(c.Plan().Attempt)) == a
}

// renewed says whether the reader renews the decode of a: history names it, it
// lives and has neither given a up nor read it to the end.
func (w *world) renewed(a int) bool {
	g := int(w.named.gateway)
	return w.isReader(g) && !w.moved && w.gw[g].told&bit(a) != 0 && w.gw[g].wrote&bit(a) == 0 &&
		w.gw[g].reading.State(w.plans[a].Attempt) != handoff.ReaderGivenUp
}

// faultSteps: what may still go wrong, each once.
func (w *world) faultSteps(out emit) {
	for left := w.left; left != 0; left &= left - 1 {
		f := left & -left
		n := w.fork()
		n.left &^= f
		isFault := true
		switch f {
		case Takeover:
			alive := w.current >= 0 && w.wk[w.current].coord != nil
			if !n.takeover() {
				continue
			}
			isFault = alive
		case Preempt:
			w.preemptSteps(out)
			continue
		case StartUnknown, LeaseP, LeaseD, LeaseDecode, Corrupt, Repost:
			continue // steps of their own
		default:
			if !n.fail(f) {
				continue
			}
		}
		out(act{kind: actFault, p: uint8(bits.TrailingZeros32(uint32(f)))}, isFault, n)
	}
}

// fail does one fault; false when it cannot happen now.
func (w *world) fail(f fault) bool {
	switch f {
	case RestartTD:
		w.restartTD(true)
	case RestartHost:
		w.restartTD(false)
	case RestartTP:
		w.restartTP()
	case RestartGW:
		x := gateway{incarnation: w.gw[g0].incarnation + 1, gave: w.gw[g0].gave, reading: &handoff.Reading{Omit: w.Omit}}
		if w.Omit.Has(handoff.RuleReaderIncarnation) {
			x.told = w.gw[g0].told // the same address, taken for the same reader
		}
		w.gw[g0] = x
		if w.got != 0 && w.conn == g0 {
			w.conn = nobody // its connection is gone, and only position 0 comes again
		}
		w.killWorker(g0)
	case Kill:
		w.gw[g0] = gateway{dead: true, incarnation: w.gw[g0].incarnation, gave: w.gw[g0].gave, reading: &handoff.Reading{Omit: w.Omit}}
		w.killWorker(g0)
	case Cancel:
		if !w.started || w.over || w.hist.coord == nil {
			return false
		}
		w.cancelled = true
		a := w.index(w.hist.coord.Plan().Attempt)
		w.send(msgRelease, a) // cancel goes direct as well
		w.send(msgReleaseP, a)
	case Reattach:
		if w.conn != g0 || w.named.gateway != g0 || w.got != 0 && !w.Omit.Has(handoff.RuleReaderPosition) || w.over {
			return false
		}
		w.conn, w.moved = g1, true
	case Reset:
		return w.resetRun()
	case Terminate:
		if !w.started || w.over {
			return false
		}
		w.over, w.current, w.hist = true, -1, worker{}
		for i := range w.wk {
			if w.wk[i].coord != nil {
				w.mutable(i)
				w.run(i)
			}
		}
	}
	return true
}

// takeover: the workflow task times out and another worker re-runs from history.
func (w *world) takeover() bool {
	if w.current < 0 || w.hist.coord == nil {
		return false
	}
	other := 1 - w.current
	if w.wk[other].coord != nil || w.gw[other].dead {
		return false
	}
	w.wk[other] = w.hist
	old := int(w.current)
	w.current = other
	if w.wk[old].coord != nil {
		w.mutable(old)
		w.run(old) // of no further effect if it had to record
	}
	return true
}

// killWorker ends the worker of process g. Without another one to take over the
// workflow is timed out.
func (w *world) killWorker(g int) {
	w.wk[g] = worker{}
	if w.started && int(w.current) == g && w.left&Takeover == 0 {
		w.over, w.current, w.hist = true, -1, worker{}
	}
}

// restartTD begins D0's next incarnation. Posted operations end with the
// process. If the engine lives, visible targets are adopted; the others'
// blocks are free at once.
func (w *world) restartTD(engineLives bool) {
	old := w.td[d0]
	w.td[d0] = handoff.NewTargets(nodes[d0], old.Incarnation+1)
	w.td[d0].Omit = w.Omit
	w.afterTD(old, engineLives)
}

// afterTD is what the new life of D0 finds of this request.
func (w *world) afterTD(old *handoff.Targets, engineLives bool) {
	for a := range many {
		if w.at[a] != d0 || w.memory(a) != a {
			continue
		}
		r := old.Get(w.plans[a].Attempt)
		if r == nil {
			continue
		}
		for p := range w.wire[a] {
			w.wire[a][p] = 0
		}
		if s := w.sourceOf(a); s != nil {
			w.stepSource(handoff.SourceDestroy, a, nil) // the holder is dead
		}
		switch {
		case engineLives && w.visible&bit(a) != 0:
			w.td[d0].Adopt(0, handoff.Adopted{Plan: r.Plan, Generation: r.Generation})
		default:
			w.visible &^= bit(a)
			w.target[a] = [2]handoff.Origin{}
		}
	}
	w.lookupTargets()
}

// restartTP begins P's next incarnation: it knows of no grant, its engine frees
// everything; served reads end, local ones go on.
func (w *world) restartTP() {
	w.tp = handoff.NewSources("p", w.tp.Incarnation+1)
	w.tp.Omit = w.Omit
	w.afterTP()
}

func (w *world) afterTP() {
	w.lookupSources()
	for a := range many {
		if !w.Local {
			w.endReads(a)
		}
		if w.source[a][0] != 0 {
			w.reuse(a)
		}
	}
}

// resetRun: an operator resets the run to before epoch 2 was planned.
func (w *world) resetRun() bool {
	if w.current != 0 || w.hist.coord == nil || w.hist.coord.Plan().Attempt.Epoch != 2 || w.wk[1].coord != nil {
		return false
	}
	c := handoff.NewCoordinator(w.plans[w.winner], handoff.Policy{MaxEpochs: 2, Detach: w.Detach})
	c.Omit = w.Omit
	c.NameReader(w.named.handoff()) // a reset applies the signals again
	w.reset, w.current = true, 1
	w.wk[1] = worker{coord: c}
	w.run(1)
	w.hist = w.wk[1]
	if w.wk[0].coord != nil {
		w.mutable(0)
		w.run(0)
	}
	return true
}

// preemptSteps: P's engine drops or rewrites what it announced.
func (w *world) preemptSteps(out emit) {
	for a := range many {
		r := w.sourceOf(a)
		if r == nil || r.State == handoff.SourceClosed || r.State == handoff.SourceUnknown || w.memory(a) != a {
			continue
		}
		if !w.Omit.Has(handoff.RuleAnnounceFinal) {
			n := w.fork()
			n.left &^= Preempt
			n.stepSource(handoff.SourcePreempt, a, func(in *handoff.SourceInput) { in.Cause = handoff.CodeEngine })
			out(act{kind: actPreempt, a: uint8(a)}, true, n)
			continue
		}
		if r.State == handoff.SourceOpened && r.HasAnnounced(0) {
			n := w.fork()
			if w.source[a][0] == half {
				n.left &^= Preempt
				n.announce(a, 0)
				out(act{kind: actRewriteEnd, a: uint8(a)}, true, n)
			} else {
				n.source[a][0] = half
				out(act{kind: actRewriteBegin, a: uint8(a)}, true, n)
			}
		}
	}
}
