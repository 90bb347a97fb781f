package sim

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
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

// stride visits the pairs in an order that spreads: it shares no factor with
// their number, so each comes once.
const stride = 175_003

// visited is what -sim.pairs keeps.
type visited struct {
	Shard                string
	Next, Runs, Unjudged int
	Reached              map[string]int
	Failed               []string
}

func TestAllOrderedPairs(t *testing.T) {
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
			wantHolds(t, pairAt(k))
		}
		return
	}
	p := remembered(t)
	cells := len(pairFaults) * len(pairPoints)
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	for ; p.Next < cells*cells && time.Now().Before(end); p.Next++ {
		if p.Next%n != i-1 {
			continue
		}
		r := wantHolds(t, pairAt(p.Next))
		p.Runs++
		if r.Unjudged != "" {
			p.Unjudged++
		}
		for name, k := range r.Reached {
			p.Reached[name] += k
		}
		if r.Failed() {
			p.Failed = append(p.Failed, r.Case.String())
		}
		if p.Runs%500 == 0 {
			remember(t, p)
		}
	}
	remember(t, p)
	t.Logf("shard %s: %d of %d pairs, %d not judged, %d failed; sometimes: %v", p.Shard, p.Runs, cells*cells/n, p.Unjudged, len(p.Failed), p.Reached)
	if p.Next >= cells*cells {
		for _, name := range rare {
			if p.Reached[name] == 0 {
				t.Errorf("never reached: %s: the run was too weak to say much", name)
			}
		}
	}
}

// pairAt is the k-th pair of the visit. Its seed is the pair's own.
func pairAt(k int) Case {
	cells := len(pairFaults) * len(pairPoints)
	x := k * stride % (cells * cells)
	cell := func(c int) Strike { return Strike{pairFaults[c/len(pairPoints)], pairPoints[c%len(pairPoints)]} }
	return Case{Seed: *seed + uint64(x), Strikes: []Strike{cell(x / cells), cell(x % cells)}}
}

func remembered(t *testing.T) *visited {
	p := &visited{Shard: *shard, Reached: map[string]int{}}
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
	text, err := json.MarshalIndent(p, "", " ")
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

// Each pair comes once.
func TestTheVisitOfPairsIsComplete(t *testing.T) {
	cells := len(pairFaults) * len(pairPoints)
	if cells < 24*30 {
		t.Fatalf("%d cells", cells)
	}
	for a, b := stride, cells*cells; b != 0; a, b = b, a%b {
		if a%b == 0 && b != 1 {
			t.Fatalf("the stride and the number of pairs share %d", b)
		}
	}
}
