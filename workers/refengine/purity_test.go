package refengine

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

// The bits that P announces depend on the prompt and the sampling alone: not on
// chunks, on where blocks lie, or on a prefix hit.
func TestEqualPromptsSealEqualBytes(t *testing.T) {
	digests := map[int][]uint32{}
	for _, chunk := range []int{7, 64, 256} {
		c := small()
		c.ChunkTokens = chunk
		r := newRig(t, c)
		for _, n := range lengths {
			for range 2 { // the second with a prefix hit
				a := ask{prompt: promptOf(n), sampling: engine.Sampling{MaxTokens: 1, Temperature: 1, Seed: 1}, salt: "tenant"}
				plan := r.plan()
				if _, err := r.pc.Prefill(t.Context(), a.prefill(plan), nil, nil); err != nil {
					t.Fatal(err)
				}
				r.fp.mu.Lock()
				got := slices.Clone(r.fp.sources.Get(plan.Attempt).Digests)
				r.fp.mu.Unlock()
				if want := digests[n]; want == nil {
					digests[n] = got
				} else if !slices.Equal(got, want) {
					t.Errorf("%d tokens in chunks of %d: other bytes", n, chunk)
				}
				if err := r.move.releaseSource(plan); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.clean()
	}
}

func TestFreedMemoryIsPoison(t *testing.T) {
	each(t, small, func(t *testing.T, r *rig) {
		if _, err := r.handoff(ask{prompt: promptOf(200), sampling: engine.Sampling{MaxTokens: 20}}); err != nil {
			t.Fatal(err)
		}
		r.clean()
		for _, e := range []*Engine{r.p, r.d} {
			for i, b := range e.segment.Bytes()[:e.form.layout.Bytes()] {
				if b != 0xFF {
					t.Fatalf("%s: byte %d is %#x", e.c.ID, i, b)
				}
			}
		}
	})
}

func synthetic() Config {
	c := small()
	c.Compute, c.ChunkTokens = ComputeSynthetic, 0
	c.Blocks, c.Slots = 4000, 400
	return c
}

func TestASyntheticHandoffGivesItsTokens(t *testing.T) {
	r := newRig(t, synthetic())
	got, err := r.handoff(ask{prompt: make([]byte, 1000), sampling: engine.Sampling{MaxTokens: 4}, salt: "tenant"})
	if err != nil || got.text != " w0 w1 w2 w3" || got.tokens != 4 || got.finish != engine.FinishLength || got.counts.Direct != 1002 {
		t.Errorf("%+v, %v", got, err)
	}
	r.clean()
}

// One wrong byte anywhere in what landed, and there is no token.
func TestAByteOfSomebodyElseIsCaughtBeforeTheFirstToken(t *testing.T) {
	each(t, synthetic, func(t *testing.T, r *rig) {
		a := ask{prompt: make([]byte, 100), sampling: engine.Sampling{MaxTokens: 4}}
		pieces := r.d.form.shape(102).Pieces()
		for p := range pieces {
			plan := r.plan()
			token, _, err := r.ready(a, plan)
			if err != nil {
				t.Fatal(err)
			}
			target := r.d.attempts.findTarget(plan.Attempt)
			at := r.d.form.ranges(r.d.form.shape(102), target.seq)[p]
			landed := r.d.arena.Bytes(at)
			landed[0] ^= 1
			if err := r.move.commit(plan, token); err != nil {
				t.Fatal(err)
			}
			err = r.dc.Attach(t.Context(), plan, token, 0, func(e engine.DecodeEvent) error { t.Errorf("event %q", e.Text); return nil })
			wantCode(t, "attach", err, handoff.CodeIntegrity)
			if err := r.move.releaseSource(plan); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.d.BrokenDecodes(); n != uint64(pieces) {
			t.Errorf("%d broken decodes of %d", n, pieces)
		}
		r.clean()
	})
}

func TestAWriteAmidADecodeEndsIt(t *testing.T) {
	c := synthetic()
	c.Profile = schedule.Profile{StepInterval: time.Millisecond}
	each(t, func() Config { return c }, func(t *testing.T, r *rig) {
		plan := r.plan()
		token, _, err := r.ready(ask{prompt: make([]byte, 100), sampling: engine.Sampling{MaxTokens: 2000}}, plan)
		if err = errors.Join(err, r.move.commit(plan, token), r.move.releaseSource(plan)); err != nil {
			t.Fatal(err)
		}
		run := r.d.form.layout.Run(r.d.attempts.findTarget(plan.Attempt).seq.Blocks()[3], 1)
		n := 0
		err = r.dc.Attach(t.Context(), plan, token, 0, func(engine.DecodeEvent) error {
			if n++; n == 5 {
				_, err := r.d.segment.File().WriteAt([]byte("stray"), int64(run.Offset)) // as another process would
				return err
			}
			return nil
		})
		wantCode(t, "attach", err, handoff.CodeIntegrity)
		r.clean()
	})
}

func TestManySyntheticHandoffsAtOnceStayPure(t *testing.T) {
	each(t, synthetic, func(t *testing.T, r *rig) {
		var running sync.WaitGroup
		for i := range 200 {
			running.Go(func() {
				got, err := r.handoff(ask{prompt: make([]byte, 20+i), sampling: engine.Sampling{MaxTokens: 12}})
				if err != nil || got.tokens != 12 || !strings.HasSuffix(got.text, " w11") {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		running.Wait()
		if n := r.d.BrokenDecodes(); n != 0 {
			t.Errorf("%d broken decodes", n)
		}
		r.clean()
	})
}
