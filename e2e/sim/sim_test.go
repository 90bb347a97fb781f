package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	full    = flag.Bool("sim.full", false, "every fault at every point, then ordered pairs and triples until sim.minutes have passed")
	minutes = flag.Float64("sim.minutes", 60, "how long sim.full goes on")
	save    = flag.Bool("sim.save", false, "keep the transcript of a case that fails in testdata")
	seed    = flag.Uint64("sim.seed", 1, "the seed of everything")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantHolds runs a case and tells what broke, with its transcript.
func wantHolds(t *testing.T, c Case) Report {
	t.Helper()
	r := Run(t, c)
	if r.Failed() {
		t.Errorf("%s\n  %s\n%s", c, strings.Join(r.Violations, "\n  "), file(r)+transcript(r))
		if *save {
			keep(t, r)
		}
	}
	return r
}

func TestAHandoffWithoutAFaultIsWhole(t *testing.T) {
	for s := range uint64(8) {
		if r := wantHolds(t, Case{Seed: *seed + s}); r.Client != "4 tokens, none" || r.Outcome != "e1 none committed=true" {
			t.Errorf("%s: the client has %s, the workflow %s\n%s", r.Case, r.Client, r.Outcome, r.Text())
		}
	}
}

func TestASeedReplays(t *testing.T) {
	c := Case{Seed: *seed, Strikes: []Strike{{"kill-g0", "commit:ask"}, {"restart-d0", "token:answer"}}}
	if a, b := Run(t, c), Run(t, c); a.Text() != b.Text() || a.Steps != b.Steps {
		t.Errorf("%d and %d deliveries\n%s\nand\n%s", a.Steps, b.Steps, a.Text(), b.Text())
	}
}

// everyPoint lists the points that some faults alone lead to.
func everyPoint(t *testing.T) []string {
	seen := map[string]bool{}
	for _, p := range wantHolds(t, Case{Seed: longs}).Points {
		seen[p] = true
	}
	for _, x := range []string{"", "lose at commit:answer", "restart-d0 at pull:ask", "restart-p at lane-read:ask", "cancel at pull:ask", "cancel at token:answer",
		"kill-g0 at commit:ask", "full-D at reserve:ask", "come-again at commit:ask", "pause-g0 at commit:answer", "lose at start:answer"} {
		c := Case{Seed: *seed}
		if x != "" {
			s, err := ParseStrike(x)
			if err != nil {
				t.Fatal(err)
			}
			c.Strikes = []Strike{s}
		}
		for _, p := range wantHolds(t, c).Points {
			seen[p] = true
		}
	}
	var out []string
	for p := range seen {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// TestEveryFaultAtEveryPoint is a spread of the matrix in go test, all of it
// with -sim.full, and then ordered pairs and triples for as long as it may.
func TestEveryFaultAtEveryPoint(t *testing.T) {
	points, names := everyPoint(t), Faults()
	if len(points) < 30 || len(names) < 24 {
		t.Errorf("%d points and %d faults", len(points), len(names))
	}
	tally := newTally()
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	rng := rand.New(rand.NewPCG(*seed, 7))
	strike := func() Strike { return Strike{names[rng.IntN(len(names))], points[rng.IntN(len(points))]} }
	if !*full {
		for i, f := range names { // each fault at some points, each point under some fault
			for j := range 2 {
				tally.add(wantHolds(t, Case{Seed: *seed, Strikes: []Strike{{f, points[(7*i+31*j)%len(points)]}}}))
			}
		}
		for range 40 {
			tally.add(wantHolds(t, Case{Seed: rng.Uint64(), Strikes: []Strike{strike(), strike()}}))
		}
		for range 20 {
			tally.add(wantHolds(t, Case{Seed: rng.Uint64(), Strikes: []Strike{strike(), strike(), strike()}}))
		}
		t.Log(tally)
		return
	}
	for _, f := range names {
		for _, p := range points {
			tally.add(wantHolds(t, Case{Seed: *seed, Strikes: []Strike{{f, p}}}))
		}
	}
	t.Logf("every cell: %s", tally)
	for time.Now().Before(end) && !t.Failed() {
		tally.add(wantHolds(t, Case{Seed: rng.Uint64(), Strikes: []Strike{strike(), strike()}}))
		tally.add(wantHolds(t, Case{Seed: rng.Uint64(), Strikes: []Strike{strike(), strike(), strike()}}))
	}
	t.Logf("with pairs and triples: %s", tally)
	for _, name := range rare {
		if tally.reached[name] == 0 {
			t.Errorf("never reached: %s: the run was too weak to say much", name)
		}
	}
}

// rare states that a full run must have seen, or it was too weak.
var rare = []string{
	"a byte of an attempt given up is dropped",
	"a commit was refused",
	"a displaced connection's token is not taken",
	"a late completion of a task was refused",
	"a process stood still past its lease",
	"a reader gave an attempt up when asked",
	"a run was not closed over an event",
	"a worker took another's workflow over",
	"another epoch was planned",
	"another reader was named",
	"the ledger was rebuilt from the daemons",
}

// tally counts what runs came to.
type tally struct {
	runs, struck, steps int
	ends, reached       map[string]int
}

func newTally() *tally { return &tally{ends: map[string]int{}, reached: map[string]int{}} }

func (x *tally) add(r Report) {
	x.runs++
	x.struck += r.Struck
	x.steps += r.Steps
	x.ends["client "+r.Client]++
	x.ends["workflow "+r.Outcome]++
	for n, k := range r.Reached {
		x.reached[n] += k
	}
}

func (x *tally) String() string {
	lines := []string{fmt.Sprintf("%d runs, %d faults struck, %d deliveries", x.runs, x.struck, x.steps)}
	for _, m := range []map[string]int{x.ends, x.reached} {
		var ks []string
		for k := range m {
			ks = append(ks, k)
		}
		slices.Sort(ks)
		for _, k := range ks {
			lines = append(lines, fmt.Sprintf("%6d %s", m[k], k))
		}
	}
	return strings.Join(lines, "\n")
}
