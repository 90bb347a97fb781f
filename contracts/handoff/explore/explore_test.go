package explore

import (
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

// In tests a search ends at this many states, unless its scenario is complete
// before. The command explore goes on: see its -max-states.
const testStates, shortStates = 3_000, 1_500

func bound(t *testing.T) int {
	if brief() {
		return shortStates
	}
	return testStates
}

func TestWithEveryRuleInForceNothingIsFound(t *testing.T) {
	for _, sc := range Scenarios {
		t.Run(sc.Name, func(t *testing.T) {
			r := Run(sc, bound(t))
			t.Log(r)
			if r.Failed() {
				t.Fatalf("%s\n%s", r.Violation, strings.Join(r.Trace, "\n"))
			}
		})
	}
}

func TestTheSmallestWorldIsSearchedCompletely(t *testing.T) {
	if brief() {
		t.Skip("takes some seconds")
	}
	r := Run(Scenario{Name: "coarse: no fault", Quick: true}, 0)
	t.Log(r)
	if r.Failed() || !r.Complete || r.Leaking != 0 {
		t.Fatalf("%s\n%s", r, strings.Join(r.Trace, "\n"))
	}
}

// Each rule is needed although all the others are there.
func TestEachRuleLeftOutIsFoundOut(t *testing.T) {
	for _, m := range Mutants {
		t.Run(m.Name, func(t *testing.T) {
			if brief() && !m.Brief {
				t.Skip("takes some seconds")
			}
			r := Run(m.Scenario, 100_000)
			t.Logf("%s\n%s", r, strings.Join(r.Trace, "\n"))
			found := strings.HasPrefix(r.Violation, m.Breaks+":") || m.Breaks == "leak" && r.Leaking > 0
			if !found {
				t.Fatalf("looked for %s, found %q and %d leaking states", m.Breaks, r.Violation, r.Leaking)
			}
			if brief() || m.Breaks == "leak" || r.States > 5_000 {
				return // the command goes that far; the control of a leak is a complete search
			}
			control := m.Scenario
			control.Omit = m.Control
			if c := Run(control, r.States); c.Failed() {
				t.Fatalf("with the rule in force: %s\n%s", c.Violation, strings.Join(c.Trace, "\n"))
			}
		})
	}
}

// Why workflows tells who comes again only once that is history: else an earlier
// reader's report, which the next worker hears first, ends a stream that is read.
func TestAReaderToldBeforeThatIsHistoryBreaksTheKey(t *testing.T) {
	sc := Scenario{Name: "told early", Quick: true, Quicker: true, Begin: replanned, Faults: Reattach, Early: true}
	r := Run(sc, 100_000)
	t.Logf("%s\n%s", r, strings.Join(r.Trace, "\n"))
	if !strings.HasPrefix(r.Violation, "S13:") {
		t.Fatal("the key is never free")
	}
	sc.Early = false
	if c := Run(sc, r.States); c.Failed() {
		t.Fatalf("told in time: %s\n%s", c.Violation, strings.Join(c.Trace, "\n"))
	}
}

func TestSharedBlocksAndTheLedger(t *testing.T) {
	for _, c := range []struct {
		r      Result
		breaks string
	}{
		{Pins(0), ""}, {Pins(handoff.Omit(handoff.RulePins)), "S5"},
		{Ledger(0), ""}, {Ledger(handoff.Omit(handoff.RuleCapacitySet)), "S8"},
	} {
		t.Log(c.r)
		if c.breaks == "" && c.r.Failed() || c.breaks != "" && !strings.HasPrefix(c.r.Violation, c.breaks+":") {
			t.Errorf("%s: want %q, found %q and %d leaking\n%s", c.r.Scenario.Name, c.breaks, c.r.Violation, c.r.Leaking, strings.Join(c.r.Trace, "\n"))
		}
	}
}

// A search is a pure function of its scenario.
func TestASearchIsDeterministic(t *testing.T) {
	sc := Scenario{Name: "twice", Quick: true, Faults: Takeover | Cancel}
	a, b := Run(sc, 3000), Run(sc, 3000)
	if a.States != b.States || a.Edges != b.Edges || a.Depth != b.Depth {
		t.Errorf("%s\n%s", a, b)
	}
}

// Equal keys must mean equal futures: the successors of every state that is met
// twice are compared.
func TestStatesOfOneKeyHaveTheSameSuccessors(t *testing.T) {
	sc := Scenario{Name: "keys", Readers: true, Faults: Takeover | Reattach | RestartTD}
	first, _ := initial(sc)
	successors := map[key][]key{}
	level, seen := []*world{first}, map[key]bool{}
	var buf []byte
	visits := 0
	for len(level) > 0 && visits < 4_000 {
		var next []*world
		for _, w := range level {
			var to []key
			var fresh []*world
			w.next(func(_ act, _ bool, n *world) {
				n.normalise()
				to = append(to, n.key(&buf))
				fresh = append(fresh, n)
			})
			k := w.key(&buf)
			if old, ok := successors[k]; ok {
				if len(old) != len(to) {
					t.Fatalf("one key, %d and %d successors", len(old), len(to))
				}
				for i := range to {
					if old[i] != to[i] {
						t.Fatalf("one key, another successor %d", i)
					}
				}
			}
			successors[k] = to
			visits++
			for i, n := range fresh {
				if !seen[to[i]] || visits%7 == 0 {
					seen[to[i]] = true
					next = append(next, n)
				}
			}
		}
		level = next
	}
}
