package refengine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

// heavy is synthetic state of 128 KiB a token, as a model of some billions of
// parameters has, computed at a pace that leaves its transfer time to overlap.
func heavy(serialBelow int) Config {
	c := synthetic()
	c.Blocks, c.Slots, c.SerialBelow, c.Poison = 200, 3, serialBelow, false
	c.Synthetic.Layers, c.Synthetic.TokenBytes = 16, 8<<10
	c.ChunkTokens = 256
	c.Profile = schedule.Profile{PrefillTokensPerSecond: 5000}
	return c
}

// A prompt that is announced when it is computed ends as one that is announced
// layer by layer does.
func TestAShortPromptIsAnnouncedOnceAndWhole(t *testing.T) {
	for _, serialBelow := range []int{0, 1 << 20} {
		c := synthetic()
		c.SerialBelow = serialBelow
		each(t, func() Config { return c }, func(t *testing.T, r *rig) {
			for _, n := range []int{1, 15, 16, 500, 1200} {
				got, err := r.handoff(ask{prompt: make([]byte, n), sampling: engine.Sampling{MaxTokens: 8}})
				if err != nil || got.tokens != 8 {
					t.Fatalf("%d tokens: %+v, %v", n, got, err)
				}
			}
			r.clean()
		})
	}
}

// BenchmarkOverlap gives, by prompt length, the time between P's seal and the
// validated pull, what the prefill did not hide of the transfer, either way. The two
// are measured in turns, so that a loud minute is loud for both, and the ratio is the
// median of the pairs'. The shortest prompt from which on each longer one gains a tenth
// or more is what handoff.OverlapTokens should be.
func BenchmarkOverlap(b *testing.B) {
	lengths := []int{16, 32, 64, 128, 256, 512, 1024, 2048}
	ways := []*rig{newRealRig(b, heavy(1<<20)), newRealRig(b, heavy(0))}
	crossing, pays := 0, true
	var lines []string
	for _, n := range slices.Backward(lengths) {
		var took [2][]time.Duration
		var ratios []float64
		b.Run(fmt.Sprintf("%d-tokens", n), func(b *testing.B) {
			for _, r := range ways {
				r.exposed(b, n) // the first one touches pages and dials
			}
			took, ratios = [2][]time.Duration{}, nil
			for turn := range b.N {
				var pair [2]time.Duration
				for i := range pair {
					way := (turn + i) % 2
					pair[way] = max(ways[way].exposed(b, n), time.Microsecond)
					took[way] = append(took[way], pair[way])
				}
				ratios = append(ratios, float64(pair[1])/float64(pair[0]))
			}
		})
		if len(ratios) == 0 {
			b.Fatal("nothing was measured")
		}
		slices.Sort(took[0])
		slices.Sort(took[1])
		slices.Sort(ratios)
		ratio := ratios[len(ratios)/2]
		lines = append(lines, fmt.Sprintf("# %5d tokens: exposed %8s serial, %8s overlapped: %.2f x", n, took[0][len(took[0])/2].Round(10*time.Microsecond),
			took[1][len(took[1])/2].Round(10*time.Microsecond), ratio))
		if pays = pays && ratio <= 0.9; pays {
			crossing = n
		}
	}
	for _, l := range slices.Backward(lines) {
		fmt.Println(l)
	}
	fmt.Printf("# overlapping pays from %d tokens on; handoff.OverlapTokens, which P and orchestrator go by, is %d\n", crossing, handoff.OverlapTokens)
}

// exposed runs a handoff up to its validation and beyond, and gives the time from
// the seal to the end of the pull.
func (r *rig) exposed(b *testing.B, tokens int) time.Duration {
	plan := r.plan()
	a := ask{prompt: make([]byte, tokens), sampling: engine.Sampling{MaxTokens: 1}}
	reserved, err := r.dc.Reserve(b.Context(), a.reservation(plan))
	if err != nil {
		b.Fatal(err)
	}
	type end struct {
		at  time.Time
		err error
	}
	pulled := make(chan end, 1)
	_, err = r.pc.Prefill(b.Context(), a.prefill(plan), func(o engine.Opened) {
		go func() {
			err := r.move.pull(plan, reserved.Token, o)
			pulled <- end{time.Now(), err}
		}()
	}, nil)
	sealed := time.Now()
	if err != nil {
		b.Fatal(err)
	}
	e := <-pulled
	if e.err != nil {
		b.Fatal(e.err)
	}
	for _, err := range []error{r.move.releaseSource(plan), r.move.releaseTarget(plan)} {
		if err != nil {
			b.Fatal(err)
		}
	}
	for r.p.Description().BlocksFree != r.p.Description().Blocks || r.d.Description().BlocksFree != r.d.Description().Blocks {
		time.Sleep(time.Millisecond)
	}
	return max(e.at.Sub(sealed), 0)
}
