package refengine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
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
// validated pull: what the prefill did not hide of the transfer. The shortest
// prompt that gains by overlapping is what --serial-below should be.
func BenchmarkOverlap(b *testing.B) {
	lengths := []int{16, 32, 64, 128, 256, 512, 1024, 2048}
	serial, overlapped := exposures(b, "serial", heavy(1<<20), lengths), exposures(b, "overlapped", heavy(0), lengths)
	crossing := 0
	for i, n := range slices.Backward(lengths) {
		fmt.Printf("# %5d tokens: exposed %8s serial, %8s overlapped: %.2f x\n", n, serial[i].Round(10*time.Microsecond), overlapped[i].Round(10*time.Microsecond),
			float64(overlapped[i])/float64(max(serial[i], 1)))
		if overlapped[i] < serial[i] {
			crossing = n
		}
	}
	fmt.Printf("# the shortest prompt that gains by overlapping has %d tokens: --serial-below %d\n", crossing, crossing)
}

// exposures gives the median of each length.
func exposures(b *testing.B, mode string, c Config, lengths []int) (median []time.Duration) {
	r := newRealRig(b, c)
	for _, n := range lengths {
		var took []time.Duration
		b.Run(fmt.Sprintf("%s-%d-tokens", mode, n), func(b *testing.B) {
			r.exposed(b, n) // the first one touches pages and dials
			took = took[:0]
			for range b.N {
				took = append(took, r.exposed(b, n))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "exposed-us/op")
		})
		if len(took) == 0 {
			b.Fatal("nothing was measured")
		}
		median = append(median, took[len(took)/2])
	}
	return median
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
