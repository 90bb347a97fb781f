package sim

import (
	"math/rand/v2"
	"testing"
)

// found are cases in which a planted bug shows; -sim.full looks for others.
var found = map[string][]Case{
	drainSource:   {{Seed: 6353805660616593880, Strikes: []Strike{{"kill-g1", "attach:ask"}, {"cancel", "prefill:answer"}}}},
	readerRecords: {{Seed: 11530991055798438353, Strikes: []Strike{{"isolate-g0", "commit:answer"}, {"isolate-g0", "commit:answer"}}}},
	recordedFirst: {{Seed: 12619842407620117291, Strikes: []Strike{{"pause-D-host", "commit:ask"}, {"kill-g0", "finish-target:ask"}}}},
	readerLife:    {{Seed: 13599498728815304772, Strikes: []Strike{{"kill-g0", "commit:answer"}, {"slow-link", "lane-close:ask"}}}},
	clientLeaves:  {{Seed: 13649807927898494952, Strikes: []Strike{{"restart-p", "open-target:ask"}, {"come-again", "tell-reader:answer"}}}},
}

// TestEveryPlantedBugIsFound shows that the simulation can fail: with a rule
// left out a check reports it, with the rule the same case holds.
func TestEveryPlantedBugIsFound(t *testing.T) {
	most := 60
	if *full {
		most = 5000
	}
	for _, plant := range Plants {
		t.Run(plant, func(t *testing.T) {
			cases := found[plant]
			rng := rand.New(rand.NewPCG(*seed, 11))
			for n := range most {
				c := cases[n%len(cases)]
				if n >= len(cases) { // the same faults, interleaved otherwise
					c.Seed = rng.Uint64()
				}
				c.Plant = plant
				if r := Run(t, c); r.Failed() {
					t.Logf("run %d, %s: %s", n+1, c, r.Violations[0])
					c.Plant = ""
					wantHolds(t, c)
					return
				}
			}
			t.Errorf("not found in %d runs", most)
		})
	}
}
