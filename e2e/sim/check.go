package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/check"
)

// planned notes a plan that history has: everything before it is superseded.
func (s *Sim) planned(p handoff.Plan, afterCancel bool) {
	s.say("h: e%d is planned, P %s -> D %s", p.Attempt.Epoch, p.P.Node, p.D.Node)
	s.reached("another epoch was planned")
	s.late[p.Attempt] = afterCancel
}

// refused notes that somebody was told closed by a TD: it may never be visible.
func (s *Sim) refused(a handoff.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[a] = true
}

// committed notes a commit's answer and the state at that instant.
func (s *Sim) committed(a handoff.Attempt, at string, ans handoff.TargetAnswer, err error) {
	if err != nil {
		s.reached("a commit was refused")
		return
	}
	if e := s.hosts[at].engine; ans.State == handoff.TargetCommitted && !s.shows(e, a) && !s.finished(e, a) {
		s.violate("S14: %s was answered committed at %s, whose page does not show it", name(a), at)
	}
}

// owns notes an operation on an attempt at a daemon, for the history's judge.
func (s *Sim) owns(op, at string, a handoff.Attempt) (answered func(handoff.TargetState, error)) {
	done := s.owners.Call(check.Op{Object: at + " " + a.String(), Name: op})
	return func(state handoff.TargetState, err error) {
		switch code := handoff.CodeOf(err); {
		case err != nil && code == handoff.CodeUnavailable:
			done(check.Unknown)
		case code == handoff.CodeClosed, err == nil && state == handoff.TargetClosed:
			done("closed")
		case code == handoff.CodeAborted, err == nil && state == handoff.TargetAborted:
			done("aborted")
		case err != nil:
			done("refused")
		case state == handoff.TargetCommitted:
			done("committed")
		default:
			done("opened")
		}
	}
}

func (s *Sim) shows(e *engineSim, a handoff.Attempt) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.targets[a]
	return d != nil && d.blocks != nil && e.mem.IsVisible(d.slot, a)
}

func (s *Sim) finished(e *engineSim, a handoff.Attempt) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.life.dead() || e.targets[a] != nil && e.targets[a].whole
}

// check looks at the whole state, as somebody who sees everything.
func (s *Sim) check(rest bool) {
	defer s.lock()()
	s.moved = s.moved || rest
	w := s.view()
	w.Rest = rest
	if rest {
		w.Held = len(s.leftOver())
	}
	for _, v := range handoff.Violations(&w) {
		s.violate("%s", v)
	}
	for _, h := range s.hosts {
		if n := len(h.engine.free); n > blocks {
			s.violate("S8: %s has %d free blocks of %d", h.name, n, blocks)
		}
	}
}

// lock holds what is looked at. Nothing runs, so nobody waits; it orders the
// look with what runs before and after it.
func (s *Sim) lock() (unlock func()) {
	s.client.mu.Lock()
	for _, h := range s.hosts {
		h.engine.mu.Lock()
	}
	for _, g := range s.gateways {
		g.mu.Lock()
	}
	return func() {
		s.client.mu.Unlock()
		for _, h := range s.hosts {
			h.engine.mu.Unlock()
		}
		for _, g := range s.gateways {
			g.mu.Unlock()
		}
	}
}

// view builds what the invariants look at. Nothing runs meanwhile.
func (s *Sim) view() (w handoff.World) {
	s.history.mu.Lock()
	at, begun := s.history.reader, s.history.begun
	newest := s.history.newest.Plan.Attempt.Epoch
	planned := maps.Clone(s.history.plans)
	s.history.mu.Unlock()
	for _, name := range []string{"p", "p1", "d0", "d1", "d2"} {
		h := s.hosts[name]
		if h.daemon.dead() {
			continue
		}
		targets, sources := h.core().Records(1 << 10)
		highest := map[handoff.HandoffID]handoff.Epoch{} // a client that asks again has another handoff
		for _, t := range targets {
			a := t.Plan.Attempt
			highest[a.Handoff] = max(highest[a.Handoff], a.Epoch)
		}
		for _, t := range targets {
			w.Targets = append(w.Targets, handoff.TargetFact{Attempt: t.Plan.Attempt, Node: handoff.NodeID(name), State: t.State, Posted: t.Posted, Highest: highest[t.Plan.Attempt.Handoff], Freed: t.Freed})
		}
		for _, x := range sources {
			w.Sources = append(w.Sources, handoff.SourceFact{Attempt: x.Plan.Attempt, State: x.State, Posted: x.Posted, Freed: x.Freed})
		}
	}
	for _, name := range []string{"p", "p1", "d0", "d1", "d2"} {
		e := s.hosts[name].engine
		if e.life.dead() {
			continue
		}
		for a, d := range e.targets {
			if d.blocks == nil || !e.mem.IsVisible(d.slot, a) {
				continue
			}
			v := handoff.VisibleTarget{Attempt: a, Node: handoff.NodeID(name), Want: 1, Verified: true, Refused: s.told[a], Late: s.late[a]}
			for p, b := range d.blocks {
				origin := handoff.Origin(1)
				if !slices.Equal(e.mem.Get(uint64(b)*blockBytes, blockBytes), kv(a, d.plan.BodyDigest, uint32(p))) {
					origin = 99
				}
				v.Pieces = append(v.Pieces, origin)
			}
			// Given up by the reader that history names, or superseded by a plan: only
			// what was planned, for nobody proved of anything else that it is closed.
			g := s.gateways[at.Address]
			v.GivenUp = planned[a] && a.Epoch < newest
			if begun && g != nil && g.life.name == at.Reader.Process && g.life.incarnation == at.Reader.Incarnation && g.runs[a.Handoff] != nil {
				v.GivenUp = v.GivenUp || g.runs[a.Handoff].reading.State(a) == handoff.ReaderGivenUp
			}
			w.Visible = append(w.Visible, v)
		}
	}
	w.Tokens = slices.Clone(s.client.got)
	if !s.moved {
		return w
	}
	s.moved = false
	all, err := s.ledger.Engines(context.Background())
	s.must(err, "engines")
	for _, e := range all {
		w.Ledgers = append(w.Ledgers, handoff.LedgerFact{Total: e.Blocks, Used: e.Used, Free: e.Blocks - min(e.Used, e.Blocks)})
	}
	return w
}

// leftOver lists what is held beyond the baseline.
func (s *Sim) leftOver() (out []string) {
	for _, name := range []string{"p", "p1", "d0", "d1", "d2"} {
		h := s.hosts[name]
		st := h.core().Stats()
		if st.TargetsLive+st.TargetsQuarantined+st.SourcesLive+st.SourcesQuarantined+st.PinnedBlocks > 0 {
			out = append(out, fmt.Sprintf("%s holds %d+%d targets, %d+%d sources, %d pins", name, st.TargetsLive, st.TargetsQuarantined, st.SourcesLive, st.SourcesQuarantined, st.PinnedBlocks))
		}
		if n := len(h.engine.free); n != blocks && !h.engine.life.dead() {
			out = append(out, fmt.Sprintf("%s has %d free blocks of %d", h.engine.life.name, n, blocks))
		}
		if n := h.now.Load().puller.Running(); n > 0 {
			out = append(out, fmt.Sprintf("%s runs %d pulls", name, n))
		}
	}
	all, err := s.ledger.Engines(context.Background())
	s.must(err, "engines")
	for _, e := range all {
		if e.Promises > 0 {
			out = append(out, fmt.Sprintf("the ledger has %d promises on %s", e.Promises, e.ID))
		}
	}
	for _, g := range s.gateways {
		if n := g.steps.Attempts.Len(); n > 0 && !g.life.dead() {
			out = append(out, fmt.Sprintf("%s remembers %d attempts", g.life.name, n))
		}
	}
	if n := len(s.lanes); n > 0 {
		out = append(out, fmt.Sprintf("%d connections are open", n))
	}
	return out
}

// rest is what must hold once everything healed and leases passed (S9, S10, S13, L1, L2).
func (s *Sim) rest() {
	for _, h := range s.leftOver() {
		s.violate("S9: %s", h)
	}
	s.check(true)
	defer s.lock()()
	c, h := s.client, s.history
	if c.over && c.code == handoff.CodeNone && len(c.got) != answer {
		s.violate("S10: the stream is whole and the client has %d of %d tokens", len(c.got), answer)
	}
	if h.begun && h.closed && h.out.Committed && h.out.Code == "" && h.out.Usage.Direct != promptTokens {
		s.violate("S12: %d prompt tokens came direct, %d were there", h.out.Usage.Direct, promptTokens)
	}
	s.key()
	for _, h := range s.hosts {
		for _, b := range h.engine.free {
			h.engine.intact(b)
		}
	}
}

// key is S13: what was committed sticks, what was refused before is free.
func (s *Sim) key() {
	if !s.history.begun || !s.history.closed {
		return
	}
	in := s.history.in
	got, err := s.ledger.Claim(context.Background(), ledger.ClaimRequest{Tenant: in.Tenant, Key: in.Key, Body: in.Plan.BodyDigest, Handoff: "probe", Owner: "probe", Window: time.Hour})
	if err != nil {
		s.violate("S13: the key cannot be asked: %v", err)
		return
	}
	// An emptied ledger knows no key: then the id of the closed run is what refuses.
	if got.Mine && len(s.client.got) > 0 && !s.history.out.Sticks() {
		s.violate("S13: the key is free though the client has tokens")
	}
}

// tooLate is a client that waits longer than it may (L1).
func (s *Sim) tooLate() {
	s.violate("L1: no end within %s", deadline+tolerance)
}
