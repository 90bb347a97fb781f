package explore

import (
	"math/bits"

	"github.com/surehand/surehand/contracts/handoff"
)

// pair is two requests on the same daemons: their records stand in the same
// real tables, a restart takes both, and with Room they wait for each other's
// memory. Each has its own workflow, history, messages and client.
type pair struct {
	w       [2]*world
	leaning string // how a step of one request changed the other
}

var requests = [2]handoff.HandoffID{"r", "q"}

// ofBoth are the faults of a process that both requests use.
const ofBoth = RestartTD | RestartHost | RestartTP | RestartGW | Kill

// ofRequest is the scenario of one of two requests.
func (sc Scenario) ofRequest(i int) Scenario {
	if i == 1 && sc.Alone {
		sc.Faults &= ofBoth
	}
	return sc
}

// CloseTogether walks over every state of two requests in the same real tables.
func CloseTogether(sc Scenario, most int) Closure {
	p := &pair{}
	var begun []string
	for i, r := range requests {
		w, done := initialOf(sc.ofRequest(i), r, p.w[0], holding{})
		p.w[i], begun = w, append(begun, done...)
	}
	p.w[0].adoptTables(p.w[1])
	c := closeFrom("two requests: "+sc.Name, p, most)
	if c.Failed() {
		c.Trace = append(begun, c.Trace...)
	}
	return c
}

// pairAct is an act of one of them.
type pairAct struct {
	request int
	act
}

func (x pairAct) String() string { return string(requests[x.request]) + ": " + x.act.String() }

func (p *pair) successors(out func(step)) {
	confluent := false
	for k, w := range p.w {
		if confluent {
			return
		}
		w.taken(func(x act, isFault, only bool, n *world) {
			confluent = only
			f := fault(0)
			if x.kind == actFault {
				f = 1 << x.p & ofBoth
			}
			if f != 0 && k == 1 {
				return // both at once, below
			}
			m := p.w[1-k]
			to := &pair{}
			if f != 0 {
				m = m.fork()
				m.left &^= f
				m.afterShared(f, p.w[k], n)
				m.normalise()
				n.adoptTables(m)
			}
			n.normalise()
			m = m.beside(n)
			n.adoptTables(m)
			if f == 0 && !p.w[1-k].same(m) {
				to.leaning = "a step of one request changed the other: " + x.String()
			}
			if n.lost != m.lost { // the bound is of both
				m = m.fork()
				m.lost = n.lost
			}
			to.w[k], to.w[1-k] = n, m
			out(step{pairAct{k, x}, pairAct{k, x}, isFault, to})
		})
	}
}

// afterShared is what a fault of a shared process does to the other request;
// first has the tables of the one that it was applied to.
func (w *world) afterShared(f fault, before, first *world) {
	old := before.td[d0]
	w.td, w.tp = first.td, first.tp
	switch f {
	case RestartTD, RestartHost:
		w.afterTD(old, f == RestartTD)
	case RestartTP:
		w.afterTP()
	default:
		w.fail(f)
	}
	w.lookup()
}

// beside is w with the tables that n's step left.
func (w *world) beside(n *world) *world {
	if w.td == n.td && w.tp == n.tp {
		return w
	}
	m := w.fork()
	m.adoptTables(n)
	m.normalise()
	return m
}

func (w *world) adoptTables(n *world) {
	if w.td != n.td || w.tp != n.tp {
		w.td, w.tp = n.td, n.tp
		w.lookup()
	}
}

func (w *world) lookup() {
	w.lookupTargets()
	w.lookupSources()
}

func (w *world) same(m *world) bool {
	var a, b []byte
	return w == m || w.compact(&a) == m.compact(&b)
}

func (p *pair) fingerprint(buf *[]byte) uint64 {
	return ofPair(p.w[0].compact(buf), p.w[1].compact(buf))
}

// ofPair is the fingerprint of two states. Each of them is 64 bits of SHA-256
// already, so a sum of odd multiples is as good as a hash of both.
func ofPair(a, b uint64) uint64 {
	return max(a+bits.RotateLeft64(b, 29)*0x9e3779b97f4a7c15, 1)
}

func (p *pair) violations(v *handoff.World) []string {
	if p.leaning != "" {
		return []string{p.leaning}
	}
	for _, w := range p.w {
		w.look(v)
		if bad := handoff.Violations(v); len(bad) > 0 {
			return bad
		}
	}
	return nil
}

func (p *pair) busy() bool {
	return p.leaning != "" || p.w[0].events.any() || p.w[1].events.any()
}

// quiet forgets the events of both; a world that other pairs share has none.
func (p *pair) quiet() {
	for _, w := range p.w {
		if w.events.any() {
			w.events = events{}
		}
	}
}

func (p *pair) clean() bool { return p.w[0].clean() && p.w[1].clean() }
