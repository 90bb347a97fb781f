package sim

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

var (
	pairs = flag.String("sim.pairs", "", "file that remembers how far all ordered pairs of (fault, point) have got; a run goes on where it stopped")
	shard = flag.String("sim.shard", "1/1", "i/n: the i-th of n parts of them")
)

// pairFaults and pairPoints are what the ordered pairs are made of: 518,400 of
// them. The other faults and points have the matrix and the random pairs.
var (
	pairFaults = []string{"lose", "twice", "late", "stale", "overtake", "corrupt", "corrupt-source", "cut-both", "cut-P-D", "pause-g0", "pause-d0", "pause-p",
		"isolate-g0", "pause-D-host", "kill-g0", "kill-g1", "restart-d0", "restart-d0.engine", "restart-host-d0", "restart-p", "empty-ledger", "preempt", "cancel", "come-again"}
	pairPoints = []string{"start:ask", "start:answer", "claim:answer", "promise:ask", "reserve:ask", "reserve:answer", "open-target:ask", "open-target:answer",
		"prefill:ask", "prefill:answer", "open-source:ask", "announce:ask", "announce:answer", "seal:ask", "seal:answer", "pull:ask", "pull:answer", "lane-open:ask",
		"lane-news:answer", "lane-read:ask", "lane-data:answer", "lane-sealed:answer", "lane-finish:ask", "commit:ask", "commit:answer", "attach:ask", "token:answer",
		"record:ask", "stream-ended:ask", "close:ask"}
)

// visited is what -sim.pairs keeps. Where a second fault can strike is told by
// the run with the first alone: a point that it does not reach any more, and a
// fault that would change nothing there, make a pair the same run once more.
type visited struct {
	Shard     string
	After     map[int]map[int]uint32 // by first cell: the points still reached, and the faults that would change nothing there
	Cells     int                    // first cells whose own run is known
	Elsewhere int                    // pairs whose first or second point is not reached
	Idle      int                    // pairs whose second fault changes nothing
	Next      int
	Runs      int
	Seconds   float64
	Reached   map[string]int
	Failed    []string
}

func TestAllOrderedPairs(t *testing.T) {
	// A case is one goroutine after another: a second processor costs a third more. Shards are for those.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var i, n int
	if _, err := fmt.Sscanf(*shard, "%d/%d", &i, &n); err != nil || i < 1 || i > n {
		t.Fatalf("a shard is i/n with 1 ≤ i ≤ n, not %q", *shard)
	}
	known := map[string]bool{}
	for _, p := range everyPoint(t) {
		known[p] = true
	}
	for _, p := range pairPoints {
		if !known[p] {
			t.Errorf("no message passes %s", p)
		}
	}
	for _, f := range pairFaults {
		if _, ok := faults[f]; !ok {
			t.Errorf("no fault is called %s", f)
		}
	}
	if *pairs == "" {
		for k := range 12 {
			x := k * 39_119 % cells
			p := &visited{After: map[int]map[int]uint32{}}
			p.first(t, x)
			if after := p.seconds(x); len(after) > 0 {
				wantHolds(t, pairOf(x, after[k*7%len(after)]))
			}
		}
		return
	}
	runtime.GOMAXPROCS(1) // one run is one thread of events: shards take the other cores
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(256 << 20)
	p := remembered(t)
	began, before := time.Now(), p.Seconds
	end := began.Add(time.Duration(*minutes * float64(time.Minute)))
	keep := func() {
		p.Seconds = before + time.Since(began).Seconds()
		remember(t, p)
	}
	for ; p.Cells < cells && time.Now().Before(end); p.Cells++ {
		p.first(t, p.Cells)
	}
	keep()
	var all [][2]int
	if p.Cells == cells {
		for x := range cells {
			for _, y := range p.seconds(x) {
				all = append(all, [2]int{x, y})
			}
		}
	}
	step := strideOver(len(all))
	for ; p.Next < len(all) && time.Now().Before(end); p.Next++ {
		if p.Next%n != i-1 {
			continue
		}
		x := all[p.Next*step%len(all)]
		r := wantHolds(t, pairOf(x[0], x[1]))
		p.Runs++
		for name, k := range r.Reached {
			p.Reached[name] += k
		}
		if r.Failed() {
			p.Failed = append(p.Failed, r.Case.String())
		}
		if p.Runs%500 == 0 {
			keep()
		}
	}
	keep()
	t.Logf("%d ordered pairs: %d not reached, %d where the second fault changes nothing, %d left; shard %s: %d run in %.0f s, %d failed; sometimes: %v",
		cells*cells, p.Elsewhere, p.Idle, len(all), p.Shard, p.Runs, p.Seconds, len(p.Failed), p.Reached)
	if p.Cells == cells && p.Next >= len(all) {
		for _, name := range rare {
			if p.Reached[name] == 0 {
				t.Errorf("never reached: %s: the run was too weak to say much", name)
			}
		}
	}
}

// cells is how many strikes there are to make pairs of.
var cells = len(pairFaults) * len(pairPoints)

func strikeOf(cell int) Strike {
	return Strike{pairFaults[cell/len(pairPoints)], pairPoints[cell%len(pairPoints)]}
}

// pairOf is one pair. Its seed is its first strike's, so that it is that run up
// to the second.
func pairOf(x, y int) Case {
	return Case{Seed: *seed + uint64(x), Strikes: []Strike{strikeOf(x), strikeOf(y)}}
}

// first runs a first strike alone and notes which second ones make another run.
func (p *visited) first(t *testing.T, x int) {
	r := wantHolds(t, Case{Seed: *seed + uint64(x), Strikes: []Strike{strikeOf(x)}})
	reached := map[int]uint32{}
	for _, a := range r.After {
		if at := slices.Index(pairPoints, a.Point); at >= 0 && r.Struck == 1 {
			reached[at] = 0
			for f, name := range pairFaults {
				if slices.Contains(a.Idle, name) {
					reached[at] |= 1 << f
					p.Idle++
				}
			}
		}
	}
	p.After[x] = reached
	p.Elsewhere += (len(pairPoints) - len(reached)) * len(pairFaults)
}

// seconds lists the second cells that make another run after a first.
func (p *visited) seconds(x int) (out []int) {
	for f := range pairFaults {
		for at := range pairPoints {
			if idle, reached := p.After[x][at]; reached && idle>>f&1 == 0 {
				out = append(out, f*len(pairPoints)+at)
			}
		}
	}
	return out
}

// strideOver visits n pairs in an order that spreads: it shares no factor with
// n, so each comes once.
func strideOver(n int) int {
	gcd := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	step := max(1, n*618/1000)
	for n > 0 && gcd(step, n) != 1 {
		step++
	}
	return step
}

func remembered(t *testing.T) *visited {
	p := &visited{Shard: *shard, After: map[int]map[int]uint32{}, Reached: map[string]int{}}
	text, err := os.ReadFile(*pairs)
	if errors.Is(err, os.ErrNotExist) {
		return p
	}
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil || p.Shard != *shard {
		t.Fatalf("%s is of shard %s: %v", *pairs, p.Shard, err)
	}
	return p
}

func remember(t *testing.T, p *visited) {
	text, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(*pairs+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(*pairs+".new", *pairs)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Each pair comes once, however many there are.
func TestTheVisitOfPairsIsComplete(t *testing.T) {
	if cells < 24*30 {
		t.Fatalf("%d cells", cells)
	}
	for _, n := range []int{1, 2, 12, 97, 30_030} {
		seen := map[int]bool{}
		for k := range n {
			seen[k*strideOver(n)%n] = true
		}
		if len(seen) != n {
			t.Errorf("of %d pairs %d come", n, len(seen))
		}
	}
}
