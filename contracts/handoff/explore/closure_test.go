package explore

import (
	"strings"
	"testing"
)

// A walk without confluent steps and a breadth-first search find the same graph.
func TestAWalkVisitsWhatASearchVisits(t *testing.T) {
	for _, sc := range []Scenario{
		{Name: "closed", Quick: true, Quicker: true, Begin: closed},
		{Name: "delivered", Quick: true, Quicker: true, Begin: delivered, Faults: RestartHost},
	} {
		if brief() && sc.Faults != 0 {
			continue
		}
		r, c := Run(sc, 0), Close(sc, 0)
		if r.Failed() || c.Failed() || r.States != c.States || r.Edges != c.Edges || !c.Complete {
			t.Errorf("%s\n%s\n%s", r, c, strings.Join(c.Trace, "\n"))
		}
	}
}

// What a search calls a leak the walk does as well; and a run that can stay for
// ever where something is held is none that ends.
func TestAWalkFindsLeaksAndRunsThatNeverEnd(t *testing.T) {
	if brief() {
		t.Skip("takes some seconds")
	}
	for _, m := range Mutants {
		if m.Breaks != "leak" {
			continue
		}
		r, c := Run(m.Scenario, 0), Close(m.Scenario, 0)
		if r.Leaking == 0 || c.Leaking != r.Leaking || c.Unfair == 0 {
			t.Errorf("%s\n%s", r, c)
		}
	}
}

// A walk goes deep first and finds late what lies near: these it meets within some
// ten thousand states.
func TestAWalkFindsWhatEachRuleIsFor(t *testing.T) {
	for _, m := range Mutants {
		if !m.Brief || m.Breaks == "leak" || m.Fine || m.Faults == Cancel || m.Faults != 0 && brief() {
			continue
		}
		c := Close(m.Scenario, 20_000)
		if !strings.HasPrefix(c.Violation, m.Breaks+":") {
			t.Errorf("%s: want %s, found %s", m.Name, m.Breaks, c)
		}
	}
}

// What is called confluent is: beside any other step it leads to the same state
// in either order, or the other one makes it void; and no check sees it.
func TestConfluentStepsCommute(t *testing.T) {
	tried := map[actKind]int{}
	for _, sc := range Scenarios {
		first, _ := initial(sc)
		var buf []byte
		seen := map[uint64]bool{}
		level := []*settled{{first}}
		for visits := 0; len(level) > 0 && visits < testStates/2; visits++ {
			s := level[0]
			level = level[1:]
			s.each(func(n step) {
				if k := n.to.fingerprint(&buf); !seen[k] {
					seen[k] = true
					level = append(level, n.to.(*settled))
				}
				if x := n.act.(act); x.confluent() && !n.fault {
					tried[x.kind]++
					if why := commutes(s, n); why != "" {
						t.Fatalf("%s: %q beside %q", sc.Name, x, why)
					}
				}
			})
		}
	}
	t.Log(tried)
	if len(tried) != 2 {
		t.Errorf("not every confluent step was met: %v", tried)
	}
}

// commutes gives the first step beside which a makes a difference.
func commutes(s *settled, a step) (why string) {
	var buf []byte
	self, after := s.fingerprint(&buf), a.to.fingerprint(&buf)
	if a.to.busy() {
		return "its own events"
	}
	then := map[any]uint64{} // where each step leads once a was taken
	a.to.(*settled).each(func(n step) { then[n.act] = n.to.fingerprint(&buf) })
	s.each(func(b step) {
		k := b.to.fingerprint(&buf)
		if why != "" || b.act == a.act || k == self || k == after {
			return
		}
		joined := then[b.act] == k
		b.to.(*settled).each(func(n step) {
			joined = joined || n.act == a.act && then[b.act] == n.to.fingerprint(&buf)
		})
		if !joined {
			why = b.name.String()
		}
	})
	return why
}
