package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// state is what a closure walks over: the small world, or two of them that
// share their daemons.
type state interface {
	// successors gives what may happen next; each is settled and stands alone.
	successors(out func(s step))
	fingerprint(buf *[]byte) uint64
	violations(v *handoff.World) []string
	busy() bool  // its last step has events for the checks
	quiet()      // they were looked at
	clean() bool // nothing is left: no workflow, no decode, no memory held
}

type step struct {
	name  fmt.Stringer
	act   any // comparable: the same act at another state is the same step
	fault bool
	to    state
}

// Closure is what a complete walk found.
type Closure struct {
	Name      string
	States    int
	Alone     int // of two requests: states of each by itself
	Edges     int
	Depth     int    // of the deepest path
	Cycles    int    // components of more than one state
	Complete  bool   // every reachable state was visited
	Violation string // "" when every invariant held
	Trace     []string
	Leaking   int // states from which no clean one can be reached without a fault
	Unfair    int // states or cycles in which a fair run can stay for ever and is not clean
}

func (c *Closure) Failed() bool { return c.Violation != "" || c.Leaking > 0 || c.Unfair > 0 }

func (c Closure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-46s %9d states %10d edges depth %3d cycles %d  ", c.Name, c.States, c.Edges, c.Depth, c.Cycles)
	switch {
	case c.Violation != "":
		b.WriteString(c.Violation)
	case c.Leaking > 0 || c.Unfair > 0:
		fmt.Fprintf(&b, "%d leaking states, %d that never end", c.Leaking, c.Unfair)
	case !c.Complete:
		b.WriteString("holds up to the bound")
	default:
		fmt.Fprintf(&b, "holds, complete, no leak, every fair run ends (a collision: %.0e)", Collision(c.States))
	}
	return b.String()
}

// The word of a finished state; one that is not finished has its number.
const (
	wordDone = 1 << 31
	wordEnds = 1 << 0 // a clean state can be reached without a fault
)

// walk is one depth-first search that finds strongly connected components as it
// goes (Tarjan), so that it keeps no edges and no frontier: what it needs is a
// word a state and the states on its path.
type walk struct {
	res    Closure
	most   int
	table  *table
	path   []frame
	open   []visit // states whose component is not known yet
	number uint32
	view   handoff.World
	buf    []byte

	unused     [][]followed // to be filled again
	unusedActs [][]actEdge
}

// frame is a state on the path with those of its successors that were not known
// when it was entered.
type frame struct {
	next []followed
	done int // of them, followed
	at   int // its visit
	name fmt.Stringer
}

type followed struct {
	to   state
	name fmt.Stringer
	key  uint64
}

// visit is a state whose component is still open.
type visit struct {
	key   uint64
	low   uint32
	clean bool
	acts  []actEdge
}

type actEdge struct {
	act   any
	to    uint64
	fault bool
}

// Close walks over every reachable state of a scenario, up to about most (0: all).
func Close(sc Scenario, most int) Closure {
	first, begun := initial(sc)
	c := closeFrom(sc.Name, &settled{first}, most)
	if c.Failed() {
		c.Trace = append(begun, c.Trace...)
	}
	return c
}

func closeFrom(name string, first state, most int) Closure {
	w := &walk{res: Closure{Name: name}, most: most, table: newTable()}
	w.enter(first, first.fingerprint(&w.buf), nil)
	for len(w.path) > 0 && w.res.Violation == "" && (most == 0 || w.table.used < most) {
		f := &w.path[len(w.path)-1]
		if f.done == len(f.next) {
			w.leave()
			continue
		}
		s := f.next[f.done]
		f.next[f.done] = followed{}
		f.done++
		word, known := w.table.get(s.key)
		switch {
		case !known: // still
			w.enter(s.to, s.key, s.name)
		case word&wordDone == 0:
			w.open[f.at].low = min(w.open[f.at].low, word)
		}
	}
	w.res.States, w.res.Complete = w.table.used, len(w.path) == 0
	return w.res
}

// enter begins a state: all its steps are made and looked at.
func (w *walk) enter(s state, key uint64, name fmt.Stringer) {
	w.number++
	w.table.set(key, w.number)
	w.open = append(w.open, visit{key: key, low: w.number, clean: s.clean(), acts: take(&w.unusedActs)})
	f := frame{at: len(w.open) - 1, name: name, next: take(&w.unused)}
	v := &w.open[f.at]
	s.successors(func(n step) {
		if w.res.Violation != "" {
			return
		}
		k := n.to.fingerprint(&w.buf)
		if k == key {
			return // no effect
		}
		w.res.Edges++
		v.acts = append(v.acts, actEdge{n.act, k, n.fault})
		word, known := w.table.get(k)
		if !known || n.to.busy() {
			if bad := n.to.violations(&w.view); len(bad) > 0 {
				w.fail(strings.Join(bad, "; "), append(w.trace(name), n.name.String()))
				return
			}
		}
		switch {
		case !known:
			n.to.quiet()
			f.next = append(f.next, followed{n.to, n.name, k})
		case word&wordDone == 0: // it stays open until this one is left
			v.low = min(v.low, word)
		}
	})
	w.path = append(w.path, f)
	w.res.Depth = max(w.res.Depth, len(w.path))
}

// leave ends a state; the root of a component ends the component.
func (w *walk) leave() {
	f := w.path[len(w.path)-1]
	w.path = w.path[:len(w.path)-1]
	w.unused = append(w.unused, f.next[:0])
	low := w.open[f.at].low
	if number, _ := w.table.get(w.open[f.at].key); low == number {
		w.component(w.open[f.at:], f.name)
		w.open = w.open[:f.at]
	}
	if len(w.path) > 0 {
		up := &w.open[w.path[len(w.path)-1].at]
		up.low = min(up.low, low)
	}
}

// component judges a strongly connected component, all of whose successors are
// judged already.
func (w *walk) component(members []visit, name fmt.Stringer) {
	var inside map[uint64]bool // nil: one state, which has no edge to itself
	if len(members) > 1 {
		w.res.Cycles++
		inside = make(map[uint64]bool, len(members))
		for _, m := range members {
			inside[m.key] = true
		}
	}
	ends, clean := false, true
	for _, m := range members {
		ends, clean = ends || m.clean, clean && m.clean
		for _, e := range m.acts {
			if inside != nil && inside[e.to] {
				if e.fault {
					w.fail("a fault lies on a cycle: the search for leaks does not hold", w.trace(name))
				}
				continue
			}
			if !ends && !e.fault {
				word, _ := w.table.get(e.to)
				ends = word&wordDone != 0 && word&wordEnds != 0
			}
		}
	}
	word := uint32(wordDone)
	if ends {
		word |= wordEnds
	} else if w.res.Leaking += len(members); w.res.Trace == nil {
		w.res.Trace = w.trace(name)
	}
	if !clean && stays(members, inside) {
		if w.res.Unfair++; w.res.Trace == nil {
			w.res.Trace = w.trace(name)
		}
	}
	for _, m := range members {
		w.table.set(m.key, word)
		w.unusedActs = append(w.unusedActs, m.acts[:0])
	}
}

// take gives an empty slice that has been used before, if there is one.
func take[T any](unused *[][]T) []T {
	n := len(*unused) - 1
	if n < 0 {
		return nil
	}
	s := (*unused)[n]
	*unused = (*unused)[:n]
	return s
}

// stays says whether a weakly fair run can stay among the members for ever:
// each act that is no fault is taken inside, or is not possible somewhere inside.
func stays(members []visit, inside map[uint64]bool) bool {
	if len(members) == 1 { // every act leads out
		return !slices.ContainsFunc(members[0].acts, func(e actEdge) bool { return !e.fault })
	}
	always, taken := map[any]int{}, map[any]bool{}
	var acts []any
	for _, m := range members {
		here := map[any]bool{}
		for _, e := range m.acts {
			if e.fault {
				continue
			}
			if always[e.act] == 0 {
				acts = append(acts, e.act)
			}
			if !here[e.act] {
				here[e.act] = true
				always[e.act]++
			}
			taken[e.act] = taken[e.act] || inside[e.to]
		}
	}
	for _, a := range acts {
		if always[a] == len(members) && !taken[a] {
			return false // fairness has it happen, and it leads out
		}
	}
	return true
}

func (w *walk) fail(what string, trace []string) {
	if w.res.Violation == "" {
		w.res.Violation, w.res.Trace = what, trace
	}
}

// trace names the steps on the path, and one more if it is not on it yet.
func (w *walk) trace(last fmt.Stringer) []string {
	var out []string
	for _, f := range w.path {
		if f.name != nil {
			out = append(out, f.name.String())
		}
	}
	if last != nil {
		out = append(out, last.String())
	}
	return out
}
