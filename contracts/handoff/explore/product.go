package explore

import (
	"fmt"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// product is two requests once more, as what each does alone. A step of one
// request depends on the other only by how much memory that holds (Room) and by
// the answers that both together may still lose; a fault of a process that both
// use befalls each as if it were alone; and nothing else of the other changes.
// So the few thousand states of one request, each with its steps, are made and
// judged once, and the walk over pairs of them makes none: it is some twenty times
// as fast.
//
// That it is so is no assumption about the tables: pair walks over both requests
// in the same real ones, calls every step that changes the other a violation, and
// TestAProductIsThePair holds that the two walks find the same states, edges,
// depths and cycles.
type product struct {
	known map[uint64]*alone
	view  handoff.World
	buf   []byte
}

// alone is one state of one request.
type alone struct {
	of    *product
	w     *world
	holds holding
	clean bool
	steps map[holding][]aloneStep // by what the other request holds
	lost  map[uint8]*alone        // with so many answers lost
	after map[fault]aloneStep     // a fault of both, told as the other's
}

// aloneStep is a step of one request.
type aloneStep struct {
	acts   [2]fmt.Stringer // as the act of either, boxed once
	only   bool            // confluent
	fault  bool
	shared fault // of a process that both use
	to     *alone
	bad    string // what the invariants say of it
}

// couple is a state of the product.
type couple struct {
	of  [2]*alone
	bad string // of the step that led here
}

// state is the one that w is; w is settled.
func (m *product) state(w *world) *alone {
	k := w.compact(&m.buf)
	s := m.known[k]
	if s == nil {
		w.events, w.others = events{}, holding{}
		s = &alone{of: m, w: w, holds: w.holds(), clean: w.clean(), steps: map[holding][]aloneStep{}, lost: map[uint8]*alone{}, after: map[fault]aloneStep{}}
		m.known[k] = s
	}
	return s
}

// step leads to w, which is judged with its events.
func (m *product) step(w *world) aloneStep {
	w.normalise()
	w.look(&m.view)
	bad := strings.Join(handoff.Violations(&m.view), "; ")
	return aloneStep{to: m.state(w), bad: bad}
}

// next gives the steps of s beside a request that holds so much.
func (s *alone) next(others holding) []aloneStep {
	if out, ok := s.steps[others]; ok {
		return out
	}
	w := s.w.fork()
	w.others = others
	var out []aloneStep
	w.taken(func(x act, isFault, only bool, n *world) {
		a := s.of.step(n)
		if a.to == s {
			return // no effect
		}
		a.acts, a.only, a.fault = [2]fmt.Stringer{pairAct{0, x}, pairAct{1, x}}, only, isFault
		if x.kind == actFault {
			a.shared = 1 << x.p & ofBoth
		}
		out = append(out, a)
	})
	s.steps[others] = out
	return out
}

// struck is what a fault of a process that both use does to s, told as the other's.
func (s *alone) struck(f fault) aloneStep {
	to, ok := s.after[f]
	if !ok {
		n := s.w.fork()
		n.left &^= f
		n.fail(f)
		to = s.of.step(n)
		s.after[f] = to
	}
	return to
}

// losing is s with the count of lost answers, which is of both.
func (s *alone) losing(lost uint8) *alone {
	if s.w.lost == lost {
		return s
	}
	to := s.lost[lost]
	if to == nil {
		n := s.w.fork()
		n.lost = lost
		to = s.of.state(n)
		s.lost[lost] = to
	}
	return to
}

// ClosePair walks over every state of two requests.
func ClosePair(sc Scenario, most int) Closure {
	c := &couple{}
	var begun []string
	var others holding
	for i, r := range requests {
		m := &product{known: map[uint64]*alone{}}
		w, done := initialOf(sc.ofRequest(i), r, nil, others)
		c.of[i], begun = m.state(w), append(begun, done...)
		others = c.of[i].holds
	}
	res := closeFrom("two requests: "+sc.Name, c, most)
	for _, s := range c.of {
		res.Alone += len(s.of.known)
	}
	if res.Failed() {
		res.Trace = append(begun, res.Trace...)
	}
	return res
}

func (c *couple) successors(out func(step)) {
	for k := range c.of {
		me, other := c.of[k], c.of[1-k]
		for _, s := range me.next(other.holds) {
			n := &couple{bad: s.bad}
			n.of[k] = s.to
			switch {
			case s.shared == 0:
				n.of[1-k] = other.losing(s.to.w.lost)
			case k == 1:
				continue // both at once, above
			default:
				o := other.struck(s.shared)
				n.of[1-k] = o.to
				if n.bad == "" {
					n.bad = o.bad
				}
			}
			out(step{s.acts[k], s.acts[k], s.fault, n})
			if s.only {
				return
			}
		}
	}
}

func (c *couple) fingerprint(*[]byte) uint64 {
	return ofPair(c.of[0].w.print, c.of[1].w.print)
}

func (c *couple) violations(*handoff.World) []string {
	if c.bad != "" {
		return []string{c.bad}
	}
	return nil
}

func (c *couple) busy() bool  { return c.bad != "" }
func (c *couple) quiet()      {}
func (c *couple) clean() bool { return c.of[0].clean && c.of[1].clean }
