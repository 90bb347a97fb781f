package explore

import (
	"slices"

	"github.com/surehand/surehand/contracts/handoff"
)

// mutable makes worker i's coordinator its own.
func (w *world) mutable(i int) *worker {
	x := &w.wk[i]
	x.coord = x.coord.Clone()
	return x
}

// run issues what the coordinator asks for and records what history would have.
func (w *world) run(i int) {
	x := &w.wk[i]
	for again := true; again; {
		again = false
		for _, c := range x.coord.Commands() {
			w.issue(x, c)
			again = true
		}
		if p := x.coord.Phase(); p == handoff.PhaseMoving || p == handoff.PhaseCommitting {
			continue
		}
		// The attempt is lost or the outcome decided: what runs for it is stopped.
		for k, t := range x.tasks {
			if now := w.plans[t.attempt].Attempt == x.coord.Plan().Attempt; now && (t.step == kindMove || t.step == kindCommit) {
				x.drop(k)
				w.result(x, t, handoff.CodeCancelled)
				again = true
				break
			}
		}
	}
	w.abandon(x)
	w.recorded(i)
}

// abandon gives no answer to what decides nothing any more: tasks of older
// attempts, and of a decided handoff. Their messages are out and stay so.
func (w *world) abandon(x *worker) {
	for k := 0; k < len(x.tasks); {
		t := x.tasks[k]
		if w.plans[t.attempt].Attempt == x.coord.Plan().Attempt && x.coord.Outcome() == nil {
			k++
			continue
		}
		x.drop(k)
		if t.step == kindUndoTransfer || t.step == kindUndoPrefill || t.step == kindAsk {
			w.verdict(x, t, handoff.VerdictUnknown)
		} else {
			w.result(x, t, handoff.CodeCancelled)
		}
	}
}

// recorded keeps what a completed workflow task puts into history. A worker
// that is no longer the current one can record nothing: once it would have to,
// it is of no further effect.
func (w *world) recorded(i int) {
	x := &w.wk[i]
	phase := x.coord.Phase()
	if i != int(w.current) {
		acts := phase == handoff.PhaseMoving || phase == handoff.PhaseCommitting || phase == handoff.PhaseFencing
		if !acts && !(phase == handoff.PhasePlacing && w.Omit.Has(handoff.RulePlanRecorded)) {
			*x = worker{}
		}
		return
	}
	switch phase {
	case handoff.PhaseEnded:
		w.over, w.current = true, -1
		w.keyFree = w.Omit == 0 && !sticks(*x.coord.Outcome()) // a rule left out is searched for what it is for, which is more
		*x, w.hist = worker{}, worker{}
	case handoff.PhaseDecoding, handoff.PhaseClosing:
		w.hist = *x
	}
}

// sticks is what a workflow's outcome says of its key. A cancel's releases are
// abandoned here, whose answers tell whether it came after the commit: it is left out.
func sticks(o handoff.Outcome) bool { return o.Code == handoff.CodeCancelled || o.Sticks() }

func (x *worker) drop(k int) { x.tasks = slices.Concat(x.tasks[:k], x.tasks[k+1:]) }

// issue sends one command's message and awaits its result.
func (w *world) issue(x *worker, c handoff.Command) {
	a := w.index(c.Plan.Attempt)
	t := task{attempt: uint8(a), hard: c.Hard}
	pick := func(soft, hard message) message {
		if c.Hard {
			return hard
		}
		return soft
	}
	switch c.Step {
	case handoff.StepReserve:
		w.send(msgOpen, a)
		return // its result comes with that of transfer
	case handoff.StepPrefill:
		w.send(msgPrefill, a)
		return
	case handoff.StepTransfer:
		t.step = kindMove
	case handoff.StepCommit:
		t.step = kindCommit
		w.send(msgCommit, a)
	case handoff.StepUndoTransfer:
		t.step = kindUndoTransfer
		w.send(pick(msgUndo, msgRelease), a)
	case handoff.StepUndoPrefill:
		t.step = kindUndoPrefill
		w.send(pick(msgUndoP, msgReleaseP), a)
	case handoff.StepAskReader:
		t.step = kindAsk
		t.to = w.asks(x)
		w.send([2]message{msgGiveUp0, msgGiveUp1}[t.to.gateway], a)
	case handoff.StepAwaitReader:
		t.step = kindAwait
	case handoff.StepPlace:
		t.step = kindPlace
	case handoff.StepUndoReserve: // the ledger has its own small model
		x.coord.Step(handoff.Result{Step: c.Step, Attempt: c.Plan.Attempt})
		return
	}
	x.tasks = append(slices.Clone(x.tasks), t)
}

// asks is the reader whom a worker asks: the one that history names, or, with
// that rule left out, the gateway in its own process.
func (w *world) asks(x *worker) reader {
	r := x.coord.Reader()
	to := reader{uint8(slices.Index(gateways[:], r.Process)), uint8(r.Incarnation), uint8(r.Number)}
	if w.Omit.Has(handoff.RuleReaderNamed) {
		for g := range w.wk {
			if &w.wk[g] == x {
				return reader{uint8(g), w.gw[g].incarnation, to.number}
			}
		}
	}
	return to
}

// result gives a task's result without a verdict to the coordinator.
func (w *world) result(x *worker, t task, code handoff.Code) {
	a := w.plans[t.attempt].Attempt
	switch t.step {
	case kindMove:
		x.coord.Step(handoff.Result{Step: handoff.StepTransfer, Attempt: a, Code: code})
		if code != handoff.CodeNone {
			code = handoff.CodeCancelled
		}
		x.coord.Step(handoff.Result{Step: handoff.StepReserve, Attempt: a, Code: code})
		x.coord.Step(handoff.Result{Step: handoff.StepPrefill, Attempt: a, Code: code})
	case kindCommit:
		x.coord.Step(handoff.Result{Step: handoff.StepCommit, Attempt: a, Code: code})
	case kindAwait:
		x.coord.Step(handoff.Result{Step: handoff.StepAwaitReader, Attempt: a, Code: code})
	case kindPlace:
		x.coord.Step(handoff.Result{Step: handoff.StepPlace, Attempt: a, Code: code})
	}
}

// verdict gives what a closing step learned to the coordinator.
func (w *world) verdict(x *worker, t task, v handoff.Verdict) {
	step := [...]handoff.Step{kindUndoTransfer: handoff.StepUndoTransfer, kindUndoPrefill: handoff.StepUndoPrefill, kindAsk: handoff.StepAskReader}[t.step]
	r := handoff.Result{Step: step, Attempt: w.plans[t.attempt].Attempt, Verdict: v}
	if t.step == kindAsk {
		r.Reader = t.to.handoff()
	}
	x.coord.Step(r)
}
