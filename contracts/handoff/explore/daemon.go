package explore

import "github.com/surehand/surehand/contracts/handoff"

// sourceSteps: messages to P, its engine and its daemon, for attempt a.
func (w *world) sourceSteps(a int, out emit) {
	r := w.sourceOf(a)
	simple := func(kind actKind, p int, f func(n *world)) {
		n := w.fork()
		f(n)
		out(act{kind: kind, a: uint8(a), p: uint8(p)}, false, n)
	}
	later := w.Room > 0 && w.targetOf(a) != nil // P had no room when D opened
	if w.sent(msgPrefill, a) && r == nil && (!w.quicker(a) || later) && w.roomP() {
		simple(actPrefill, 0, func(n *world) { n.prefill(a) })
	}
	if w.fine(a) && w.memory(a) == a {
		w.fineSourceSteps(a, r, simple)
	}
	if (w.sent(msgUndoP, a) || w.sent(msgReleaseP, a)) && (r == nil || r.State != handoff.SourceClosed) {
		simple(actUndoP, 0, func(n *world) { n.closeSource(a, !n.sent(msgUndoP, a)) })
	}
	if r == nil || w.memory(a) != a {
		return
	}
	if w.sent(msgStopped, a) && !r.Stopped {
		simple(actStopped, 0, func(n *world) { n.stepSource(handoff.SourceFinish, a, nil) })
	}
	if r.State == handoff.SourceClosed && r.Posted > 0 && !w.Local {
		simple(actDestroy, 0, func(n *world) { n.destroy(a) })
	}
}

// prefill opens a source; in coarse scenarios it is announced and sealed as well.
func (w *world) prefill(a int) {
	lane := handoff.LaneServed
	if w.Local {
		lane = handoff.LaneLocal
	}
	ans := w.stepSource(handoff.SourceOpen, a, func(in *handoff.SourceInput) { in.Plan, in.Shape, in.Lane = &w.plans[a], &w.shape, lane })
	if ans.Code != handoff.CodeNone || w.fine(a) {
		return
	}
	for p := range w.pieces() {
		w.announce(a, p)
	}
	w.stepSource(handoff.SourceSeal, a, nil)
}

func (w *world) announce(a, p int) {
	m := w.memory(a)
	w.source[m][p], w.digest[m][p] = w.body[a], w.body[a]
	w.stepSource(handoff.SourceAnnounce, a, func(in *handoff.SourceInput) { in.Piece, in.Digest = uint32(p), uint32(w.body[a]) })
	w.known[m] |= bit(p)
}

func (w *world) fineSourceSteps(a int, r *handoff.Source, simple func(actKind, int, func(*world))) {
	if r == nil || r.State != handoff.SourceOpened {
		return
	}
	for p := range w.pieces() {
		if !r.HasAnnounced(uint32(p)) {
			simple(actAnnounce, p, func(n *world) { n.announce(a, p) })
			return // in order
		}
	}
	if w.source[a][0] != half {
		simple(actSeal, 0, func(n *world) { n.stepSource(handoff.SourceSeal, a, nil) })
	}
}

// Contents that no prefill wrote.
const (
	half    handoff.Origin = 14
	garbage handoff.Origin = 15
)

// freeSource gives P's blocks back as soon as the daemon lets the engine;
// another request writes them at once. Sooner is worse, so no later instant
// needs to be searched.
func (w *world) freeSource(a int) {
	r := w.sourceOf(a)
	if r == nil || w.memory(a) != a || r.State != handoff.SourceClosed || r.Freed || !r.Drained() && !w.Omit.Has(handoff.RuleDrained) {
		return
	}
	readers := 0
	for p := range w.wire[a] {
		readers += int(w.wire[a][p])
	}
	if err := w.sources().Free(w.plans[a].Attempt); err != nil {
		panic(err)
	}
	w.lookupSources()
	w.events.frees = append(w.events.frees, handoff.Free{Attempt: w.plans[a].Attempt, Readers: readers})
	w.reuse(a)
}

// freeTarget gives D's blocks back as soon as the daemon lets the engine.
func (w *world) freeTarget(a int) {
	r := w.targetOf(a)
	if r == nil || w.memory(a) != a || !r.State.Final() || r.Freed || !r.Drained() && !w.Omit.Has(handoff.RuleDrained) {
		return
	}
	if err := w.targets(w.at[a]).Free(w.plans[a].Attempt); err != nil {
		panic(err)
	}
	w.lookupTargets()
	w.target[a] = [2]handoff.Origin{}
}

func (w *world) reuse(a int) {
	for p := range w.pieces() {
		w.source[a][p] = garbage
	}
}

// destroy is the hard fence of a served grant: its connection ends, and with it
// every read posted on it.
func (w *world) destroy(a int) {
	w.stepSource(handoff.SourceDestroy, a, nil)
	w.endReads(a)
}

// endReads ends the posted reads of a without landing.
func (w *world) endReads(a int) {
	for p := range w.wire[a] {
		for ; w.wire[a][p] > 0; w.wire[a][p]-- {
			w.stepTarget(handoff.TargetFail, a, nil)
		}
	}
}

// targetSteps: messages to D, its daemon and its engine, for attempt a.
func (w *world) targetSteps(a int, out emit) {
	r := w.targetOf(a)
	simple := func(kind actKind, p int, f func(n *world)) {
		n := w.fork()
		f(n)
		out(act{kind: kind, a: uint8(a), p: uint8(p)}, false, n)
	}
	if w.sent(msgOpen, a) && r == nil && w.roomAt(w.at[a]) {
		simple(actOpen, 0, func(n *world) {
			n.stepTarget(handoff.TargetOpen, a, func(in *handoff.TargetInput) { in.Plan, in.Shape = &n.plans[a], &n.shape })
			for x := range many {
				n.pages(x)
			}
			if n.quicker(a) && n.sourceOf(a) == nil && n.roomP() {
				n.prefill(a)
				if s, t := n.sourceOf(a), n.targetOf(a); s != nil && s.State == handoff.SourceSealed && t != nil && t.State == handoff.TargetOpened {
					n.pull(a)
				}
			}
		})
	}
	if w.sent(msgUndo, a) && (r == nil || !r.State.Final() && r.State != handoff.TargetCommitted || w.Omit.Has(handoff.RuleUndoKeepsCommit)) {
		simple(actUndo, 0, func(n *world) { n.closeTarget(a, false) })
	}
	if w.sent(msgRelease, a) && (r == nil || !r.State.Final()) {
		simple(actRelease, 0, func(n *world) { n.closeTarget(a, true) })
	}
	if r == nil {
		return
	}
	if w.sent(msgCommit, a) && (r.State == handoff.TargetValidated || r.State == handoff.TargetVerified) {
		simple(actCommit, 0, func(n *world) { n.commit(a) })
	}
	if w.memory(a) != a {
		return
	}
	if w.sent(msgYes, a) && r.State == handoff.TargetVerified {
		simple(actYes, 0, func(n *world) { n.yes(a) })
	}
	w.pullSteps(a, r, simple, out)
	if s := w.sourceOf(a); r.State >= handoff.TargetValidated && r.Posted == 0 && !w.sent(msgStopped, a) && s != nil && !s.Freed {
		simple(actStop, 0, func(n *world) { n.send(msgStopped, a) })
	}
	if r.State == handoff.TargetCommitted && w.visible&bit(a) != 0 && (w.got&bit(a) != 0) {
		simple(actFinish, 0, func(n *world) {
			n.stepTarget(handoff.TargetFinish, a, nil)
			n.pages(a)
		})
	}
}

// pullSteps: D's daemon reads, verifies and asks.
func (w *world) pullSteps(a int, r *handoff.Target, simple func(actKind, int, func(*world)), out emit) {
	src := w.sourceOf(a)
	sealed := src != nil && src.State == handoff.SourceSealed
	switch {
	case !w.fine(a) && r.State == handoff.TargetOpened && sealed:
		simple(actPull, 0, func(n *world) { n.pull(a) })
	case w.fine(a):
		w.finePullSteps(a, r, sealed, simple, out)
	}
	if r.State == handoff.TargetVerified && r.Question == 0 && !w.sent(msgYes, a) {
		simple(actQuestion, 0, func(n *world) { n.question(a) })
	}
}

// pull reads and verifies everything in one step.
func (w *world) pull(a int) {
	for p := range w.pieces() {
		w.post(a, p)
		w.land(a, p, false)
	}
	w.verify(a)
	if w.Quick {
		w.question(a)
		w.yes(a)
	}
}

// quicker says whether a opens, prefills and is pulled in one step.
func (w *world) quicker(a int) bool { return w.Quicker && a >= e2 }

func (w *world) finePullSteps(a int, r *handoff.Target, sealed bool, simple func(actKind, int, func(*world)), out emit) {
	src := w.sourceOf(a)
	granted := w.Local || src != nil && src.State != handoff.SourceClosed
	for p := range w.pieces() {
		running := r.State == handoff.TargetOpened || r.State == handoff.TargetRunning
		again := w.left&Repost != 0 && w.wire[a][p] == 1
		if running && granted && w.known[a]&bit(p) != 0 && !r.HasLanded(uint32(p)) && (w.wire[a][p] == 0 || again) {
			n := w.fork()
			if again {
				n.left &^= Repost
			}
			n.post(a, p)
			out(act{kind: actPost, a: uint8(a), p: uint8(p)}, again, n)
		}
		if w.wire[a][p] > 0 {
			simple(actLand, p, func(n *world) { n.land(a, p, false) })
			if w.left&Corrupt != 0 {
				n := w.fork()
				n.left &^= Corrupt
				n.land(a, p, true)
				out(act{kind: actLandCorrupt, a: uint8(a), p: uint8(p)}, true, n)
			}
		}
	}
	if r.State == handoff.TargetLanded && sealed {
		simple(actVerify, 0, func(n *world) { n.verify(a) })
	}
}

func (w *world) post(a, p int) {
	r := w.sourceOf(a)
	w.events.reads = append(w.events.reads, handoff.Read{Attempt: w.plans[a].Attempt, Gone: w.grantorLives() && r != nil && r.Freed})
	if !w.Local {
		w.stepSource(handoff.SourceRead, a, func(in *handoff.SourceInput) { in.Piece = uint32(p) })
	}
	ans := w.stepTarget(handoff.TargetPost, a, func(in *handoff.TargetInput) {
		if in.Grant == 0 && r != nil { // else the one that its generation reads under
			in.Grant = r.Grant
		}
	})
	if ans.Code != handoff.CodeNone {
		panic("a read was posted that TD refuses: " + ans.Detail)
	}
	w.wire[a][p]++
}

func (w *world) land(a, p int, corrupt bool) {
	r := w.targetOf(a)
	w.events.writes = append(w.events.writes, handoff.Write{Attempt: w.plans[a].Attempt, Current: r != nil && !r.Freed})
	w.wire[a][p]--
	content := w.source[a][p]
	if corrupt {
		content = garbage
	}
	if r != nil && !r.Freed {
		w.target[a][p] = content
	}
	w.stepTarget(handoff.TargetLand, a, func(in *handoff.TargetInput) { in.Piece = uint32(p) })
	if !w.Local {
		w.stepSource(handoff.SourceReadDone, a, nil)
	}
}

// verify compares what landed with the digests that P sealed.
func (w *world) verify(a int) {
	good := true
	for p := range w.pieces() {
		if w.target[a][p] != w.digest[a][p] && !w.Omit.Has(handoff.RuleDigest) {
			good = false
			w.stepTarget(handoff.TargetMisverify, a, func(in *handoff.TargetInput) { in.Piece = uint32(p) })
		}
	}
	if good {
		m := w.sourceOf(a).Manifest
		w.stepTarget(handoff.TargetVerify, a, func(in *handoff.TargetInput) { in.Manifest = m })
	}
}

func (w *world) yes(a int) { w.stepTarget(handoff.TargetYes, a, nil) }

// question is the validated read: minted, asked, recorded by TP; the yes is on
// its way. A no closes the target.
func (w *world) question(a int) {
	r := w.targetOf(a)
	grant := r.Grant
	w.stepTarget(handoff.TargetAsk, a, func(in *handoff.TargetInput) { in.Question, in.Grant = 1, grant })
	ans := w.stepSource(handoff.SourceQuestion, a, func(in *handoff.SourceInput) { in.Grant, in.Manifest = grant, r.Manifest })
	if ans.Code == handoff.CodeNone {
		w.send(msgYes, a)
		return
	}
	w.stepTarget(handoff.TargetNo, a, nil)
}
