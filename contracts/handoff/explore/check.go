package explore

import "github.com/surehand/surehand/contracts/handoff"

// look fills v with what the world shows to the invariants.
func (w *world) look(v *handoff.World) {
	*v = handoff.World{Visible: v.Visible[:0], Tokens: v.Tokens[:0], Targets: v.Targets[:0], Sources: v.Sources[:0],
		Writes: w.events.writes, Frees: w.events.frees, Reads: w.events.reads, Answers: w.events.answers, Undone: w.events.undone, Cancelled: w.cancelled, KeyFree: w.keyFree}
	for a := range many {
		if w.memory(a) != a {
			continue
		}
		if w.visible&bit(a) != 0 {
			v.Visible = append(v.Visible, w.lookAt(a))
		}
		if w.got&bit(a) != 0 {
			v.Tokens = append(v.Tokens, handoff.Delivery{Attempt: w.plans[a].Attempt, Position: uint32(len(v.Tokens))})
		}
		if r := w.targetOf(a); r != nil {
			v.Targets = append(v.Targets, handoff.TargetFact{Attempt: r.Plan.Attempt, Node: nodes[w.at[a]], State: r.State, Left: r.Left,
				Posted: r.Posted, Highest: w.td[w.at[a]].Highest(w.request), Freed: r.Freed})
		}
		if r := w.sourceOf(a); r != nil {
			v.Sources = append(v.Sources, handoff.SourceFact{Attempt: r.Plan.Attempt, State: r.State, Posted: r.Posted, Freed: r.Freed, Drained: r.Drained()})
		}
	}
	if w.twice {
		v.Tokens = append(v.Tokens, handoff.Delivery{Attempt: v.Tokens[0].Attempt, Position: 0})
	}
}

func (w *world) lookAt(a int) handoff.VisibleTarget {
	v := handoff.VisibleTarget{Attempt: w.plans[a].Attempt, Node: nodes[w.at[a]], Want: w.body[a], Pieces: w.target[a][:w.pieces()],
		Refused: w.refused&bit(a) != 0, Late: w.late&bit(a) != 0, GivenUp: w.fenced&bit(a) != 0, Verified: true}
	if a == w.memory(int(w.winner)) {
		v.Want = w.body[w.winner]
	}
	if r := w.targetOf(a); r != nil && !r.Adopted {
		v.Verified, v.Checked = !r.Manifest.IsZero(), r.Manifest
		if s := w.sourceOf(a); s != nil {
			v.Sealed = s.Manifest
		}
	}
	if g := int(w.named.gateway); w.isReader(g) && w.gw[g].reading.State(w.plans[a].Attempt) == handoff.ReaderGivenUp {
		v.GivenUp = true
	}
	return v
}

// clean says that nothing is left: no workflow, no decode, no memory held.
func (w *world) clean() bool {
	if !w.over || w.visible != 0 || w.wk[0].coord != nil || w.wk[1].coord != nil {
		return false
	}
	for a := range many {
		if w.wire[a] != [2]uint8{} {
			return false
		}
	}
	return w.td[0].Live() == 0 && w.td[1].Live() == 0 && w.tp.Live() == 0
}
