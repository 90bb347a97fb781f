package explore

import (
	"fmt"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// small is a model that needs no more than a map of strings to be searched.
type small interface {
	key() string
	clean() bool
	look() handoff.World
	// steps gives each successor with its name; a name that begins with FAULT is one.
	steps(out func(name string, n small))
}

// runSmall searches a small model completely.
func runSmall(name string, first small) Result {
	res := Result{Scenario: Scenario{Name: name}, Complete: true}
	type node struct {
		parent int
		step   string
	}
	seen := map[string]int{first.key(): 0}
	nodes, states := []node{{-1, ""}}, []small{first}
	back := map[int][]int{}
	trace := func(id int) (out []string) {
		for ; id > 0; id = nodes[id].parent {
			out = append([]string{nodes[id].step}, out...)
		}
		return out
	}
	for id := 0; id < len(states) && res.Violation == ""; id++ {
		states[id].steps(func(step string, n small) {
			res.Edges++
			view := n.look()
			if v := handoff.Violations(&view); len(v) > 0 && res.Violation == "" {
				res.Violation, res.Trace = strings.Join(v, "; "), append(trace(id), step)
			}
			to, known := seen[n.key()]
			if !known {
				to = len(states)
				seen[n.key()] = to
				nodes, states = append(nodes, node{id, step}), append(states, n)
			}
			if !strings.HasPrefix(step, "FAULT") {
				back[to] = append(back[to], id)
			}
		})
	}
	res.States = len(states)
	reach := map[int]bool{}
	var visit func(int)
	visit = func(id int) {
		if !reach[id] {
			reach[id] = true
			for _, f := range back[id] {
				visit(f)
			}
		}
	}
	for id, s := range states {
		if s.clean() {
			visit(id)
		}
	}
	for id := range states {
		if !reach[id] && res.Violation == "" {
			if res.Leaking == 0 {
				res.Trace = trace(id)
			}
			res.Leaking++
		}
	}
	return res
}

// shared is rule 15's model: two grants on one prefix block at P, each read by
// its holder until it lets go; the engine frees the block once it is unpinned.
type shared struct {
	pins    *handoff.Pins
	holds   [2]int8 // 0: not granted yet, 1: may read, 2: let go
	freed   bool
	reading int // reads that were possible when the block was freed
}

func (s shared) key() string {
	return fmt.Sprintf("%s %v %v", s.pins.AppendKey(nil), s.holds, s.freed)
}
func (s shared) clean() bool { return s.freed }
func (s shared) look() handoff.World {
	return handoff.World{Frees: []handoff.Free{{Readers: s.reading}}}
}

func (s shared) steps(out func(string, small)) {
	for g := range s.holds {
		n := s
		n.pins = s.pins.Clone()
		switch {
		case s.holds[g] == 0 && !s.freed:
			n.holds[g] = 1
			n.pins.Pin(0, handoff.GrantID(g+1))
			out(fmt.Sprintf("grant %d on the block", g+1), n)
		case s.holds[g] == 1:
			n.holds[g] = 2
			n.pins.Unpin(0, handoff.GrantID(g+1))
			out(fmt.Sprintf("grant %d is drained", g+1), n)
		}
	}
	if !s.freed && !s.pins.Pinned(0) && s.holds != [2]int8{} {
		n := s
		n.freed = true
		for _, h := range s.holds {
			if h == 1 {
				n.reading++
			}
		}
		out("the engine frees the block", n)
	}
}

// account is rule 16's model: the ledger of one engine with two blocks, three
// attempts, messages that come late, twice or never, a ledger that fails over to
// an older state, and TD's list from which it is rebuilt.
type account struct {
	ledger *handoff.Capacity
	older  *handoff.Capacity
	sent   [3]bool // reserve was sent
	ended  [3]bool // release was sent: the attempt is over
	held   [3]bool // at TD
	lost   bool
}

var accounts = func() (out [3]handoff.Attempt) {
	for i := range out {
		out[i] = handoff.Attempt{Handoff: "r", Epoch: 1, Nonce: handoff.Nonce(i + 1)}
	}
	return out
}()

func newAccount(o handoff.Omitted) account {
	c := &handoff.Capacity{Total: 2, Omit: o}
	return account{ledger: c, older: c.Clone()}
}

func (s account) key() string {
	return fmt.Sprintf("%s %s %v %v %v %v", s.ledger.AppendKey(nil), s.older.AppendKey(nil), s.sent, s.ended, s.held, s.lost)
}

func (s account) clean() bool {
	return s.ledger.Used() == 0 && s.held == [3]bool{} && s.ended == [3]bool{true, true, true}
}

func (s account) look() handoff.World {
	return handoff.World{Ledgers: []handoff.LedgerFact{{Total: s.ledger.Total, Used: s.ledger.Used(), Free: s.ledger.Free()}}}
}

func (s account) steps(out func(string, small)) {
	step := func(name string, f func(n *account)) {
		n := s
		n.ledger = s.ledger.Clone()
		f(&n)
		out(name, n)
	}
	for i, a := range accounts {
		if !s.sent[i] {
			step(fmt.Sprintf("reserve %d is sent", i), func(n *account) { n.sent[i] = true })
		}
		if s.sent[i] {
			step(fmt.Sprintf("reserve %d reaches the ledger", i), func(n *account) {
				if n.ledger.Reserve(0, a, 1, 1) == nil && !n.ended[i] && n.used() < int(n.ledger.Total) {
					n.held[i] = true // TD opens the target, if it has the room
				}
			})
		}
		if s.sent[i] && !s.ended[i] {
			step(fmt.Sprintf("attempt %d ends", i), func(n *account) { n.ended[i], n.held[i] = true, false })
		}
		if s.ended[i] {
			step(fmt.Sprintf("release %d reaches the ledger", i), func(n *account) { n.ledger.Release(a) })
		}
	}
	step("the ledger's leases end", func(n *account) { n.ledger.Expire(1) })
	step("the ledger is rebuilt from TD's list", func(n *account) { n.ledger.Rebuild(0, n.list(), 1) })
	if !s.lost {
		step("the ledger is replicated", func(n *account) { n.older = n.ledger.Clone() })
		step("FAULT the ledger fails over to an older state", func(n *account) { n.ledger, n.lost = n.older.Clone(), true })
	}
}

func (s account) used() (n int) {
	for _, h := range s.held {
		if h {
			n++
		}
	}
	return n
}

func (s account) list() map[handoff.Attempt]uint32 {
	out := map[handoff.Attempt]uint32{}
	for i, h := range s.held {
		if h {
			out[accounts[i]] = 1
		}
	}
	return out
}

// Pins searches rule 15's model and Ledger rule 16's.
func Pins(o handoff.Omitted) Result {
	return runSmall("shared block, pins by count", shared{pins: &handoff.Pins{Omit: o}})
}

func Ledger(o handoff.Omitted) Result {
	return runSmall("ledger as a set", newAccount(o))
}
