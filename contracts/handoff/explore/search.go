package explore

import (
	"fmt"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// Result is what a search found.
type Result struct {
	Scenario  Scenario
	States    int
	Edges     int
	Depth     int
	Complete  bool     // every reachable state was visited
	Violation string   // "" when every invariant held
	Trace     []string // to the violation, or to a state that cannot become clean
	Leaking   int      // states from which no clean state can be reached; -1: not searched
}

// Failed says whether the search found a violation or a leak.
func (r *Result) Failed() bool { return r.Violation != "" || r.Leaking > 0 }

// reached stands for a violation where a goal was looked for.
const reached = "reached"

// edge leads to a state from its parent by the step number of that order.
type edge struct {
	parent uint32
	step   uint16
}

// search is one breadth-first run.
type search struct {
	sc       Scenario
	seen     map[key]uint32
	parents  []edge
	clean    []bool
	backward [][2]uint32 // to, from: edges without a fault
	edges    int
	goal     func(*world) bool // stop at the first state like this
	view     handoff.World
	scratch  []byte
}

// Run explores the scenario up to maxStates. The search is deterministic.
func Run(sc Scenario, maxStates int) Result { return run(sc, maxStates, nil) }

func run(sc Scenario, maxStates int, goal func(*world) bool) Result {
	s := &search{sc: sc, seen: map[key]uint32{}, goal: goal}
	first, _ := initial(sc)
	level := []*world{first}
	s.add(first, edge{})
	res := Result{Scenario: sc, Leaking: -1}
	base := uint32(0)
	for len(level) > 0 {
		var next []*world
		for k, w := range level {
			id := base + uint32(k)
			if v, step := s.expand(w, id, &next); v != "" {
				res.Violation, res.Trace = v, append(s.trace(id), step)
				return s.filled(res)
			}
			level[k] = nil
		}
		base += uint32(len(level))
		level = next
		res.Depth++
		if maxStates > 0 && len(s.parents) >= maxStates {
			return s.filled(res)
		}
	}
	res.Complete = true
	s.leaks(&res)
	return s.filled(res)
}

func (s *search) filled(r Result) Result {
	r.States, r.Edges = len(s.parents), s.edges
	return r
}

// add enters a state; false when it is known.
func (s *search) add(w *world, e edge) (uint32, bool) {
	k := w.key(&s.scratch)
	if id, ok := s.seen[k]; ok {
		return id, false
	}
	id := uint32(len(s.parents))
	s.seen[k] = id
	s.parents = append(s.parents, e)
	s.clean = append(s.clean, w.clean())
	return id, true
}

// expand visits every successor; it gives the first violation and its step.
func (s *search) expand(w *world, id uint32, next *[]*world) (violation, step string) {
	count := uint16(0)
	w.next(func(x act, isFault bool, n *world) {
		if violation != "" {
			return
		}
		n.normalise()
		to, fresh := s.add(n, edge{id, count})
		count++
		if to == id {
			return
		}
		s.edges++
		if !isFault {
			s.backward = append(s.backward, [2]uint32{to, id})
		}
		if fresh || n.events.any() {
			n.look(&s.view)
			if v := handoff.Violations(&s.view); len(v) > 0 {
				violation, step = strings.Join(v, "; "), x.String()
				return
			}
		}
		if fresh && s.goal != nil && s.goal(n) {
			violation, step = reached, x.String()
			return
		}
		if fresh {
			n.events = events{}
			*next = append(*next, n)
		}
	})
	return violation, step
}

func (e *events) any() bool {
	return len(e.writes)+len(e.frees)+len(e.reads)+len(e.answers)+len(e.undone) > 0
}

// leaks finds the states from which no clean one can be reached without a fault.
func (s *search) leaks(res *Result) {
	n := len(s.parents)
	start := make([]uint32, n+2)
	for _, e := range s.backward {
		start[e[0]+2]++
	}
	for i := 2; i < len(start); i++ {
		start[i] += start[i-1]
	}
	from := make([]uint32, len(s.backward))
	for _, e := range s.backward {
		from[start[e[0]+1]] = e[1]
		start[e[0]+1]++
	}
	reach := make([]bool, n)
	var queue []uint32
	for i, c := range s.clean {
		if c {
			reach[i] = true
			queue = append(queue, uint32(i))
		}
	}
	for len(queue) > 0 {
		x := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, f := range from[start[x]:start[x+1]] {
			if !reach[f] {
				reach[f] = true
				queue = append(queue, f)
			}
		}
	}
	res.Leaking = 0
	for i := range reach {
		if !reach[i] {
			if res.Leaking == 0 {
				res.Trace = s.trace(uint32(i))
			}
			res.Leaking++
		}
	}
}

// trace replays the steps that led to a state.
func (s *search) trace(id uint32) []string {
	var path []uint16
	for ; id != 0; id = s.parents[id].parent {
		path = append(path, s.parents[id].step)
	}
	w, out := initial(s.sc)
	for i := len(path) - 1; i >= 0; i-- {
		count := uint16(0)
		var chosen *world
		w.next(func(x act, _ bool, n *world) {
			if count == path[i] {
				n.normalise()
				chosen = n
				out = append(out, x.String())
			}
			count++
		})
		w = chosen
	}
	return out
}

// String is one line of a report.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-42s %9d states %10d edges depth %3d  ", r.Scenario.Name, r.States, r.Edges, r.Depth)
	switch {
	case r.Violation != "":
		b.WriteString(r.Violation)
	case !r.Complete:
		b.WriteString("holds up to the bound")
	case r.Leaking > 0:
		fmt.Fprintf(&b, "%d leaking states", r.Leaking)
	default:
		b.WriteString("holds, complete, no leak")
	}
	return b.String()
}
