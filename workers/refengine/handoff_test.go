package refengine

import (
	"fmt"
	"sync"
	"testing"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/workers/refengine/model"
)

// lengths of prompts, in tokens, around the edges of blocks, chunks and the window.
// The race detector makes the model fifty times slower: it gets fewer.
var lengths = func() []int {
	if underRace {
		return []int{2, 17, 64, 129}
	}
	return []int{2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500}
}()

// promptOf makes a prompt of n tokens: n-2 bytes and what frames them.
func promptOf(n int) []byte {
	const text = "It was a bright cold day in April, and the clocks were striking thirteen. "
	b := make([]byte, n-2)
	for i := range b {
		b[i] = text[(i+i/len(text)*7)%len(text)]
	}
	return b
}

func samplings(tokens uint32) map[string]engine.Sampling {
	return map[string]engine.Sampling{
		"greedy": {MaxTokens: tokens},
		"seeded": {MaxTokens: tokens, Temperature: 0.9, TopP: 0.95, Seed: 42},
	}
}

func TestAHandoffGivesTheTokensOfTheAggregatedRun(t *testing.T) {
	each(t, small, func(t *testing.T, r *rig) {
		for name, s := range samplings(24) {
			for _, n := range lengths {
				t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
					a := ask{prompt: promptOf(n), sampling: s, salt: "tenant"}
					want := r.aggregated(a)
					for _, cached := range []bool{false, true} {
						got, err := r.handoff(a)
						if err != nil {
							t.Fatal(err)
						}
						if got.text != want.text || got.tokens != want.tokens || got.finish != want.finish {
							t.Errorf("handoff %q (%d, %s)\naggregated %q (%d, %s)", got.text, got.tokens, got.finish, want.text, want.tokens, want.finish)
						}
						if got.counts.Direct != uint32(n) || got.counts.Cached+got.counts.Recomputed != 0 {
							t.Errorf("counts %+v of %d tokens", got.counts, n)
						}
						if hit := int(got.sealed.CachedTokens); cached && hit != (n-1)/16*16 {
							t.Errorf("second time %d of %d tokens cached", hit, n)
						}
					}
				})
			}
		}
		r.clean()
	})
}

// The baseline itself, against the model alone: one flat memory, one token at a
// time, the sampler never saved.
func TestTheAggregatedRunIsTheModelsOwn(t *testing.T) {
	r := newRig(t, small())
	for name, s := range samplings(32) {
		for _, n := range []int{17, 129} {
			if got, want := r.aggregated(ask{prompt: promptOf(n), sampling: s}), naive(t, promptOf(n), s); got.text != want {
				t.Errorf("%s, %d tokens: %q\nthe model alone: %q", name, n, got.text, want)
			}
		}
	}
}

type flat []byte

func (kv flat) Run(layer, block int) ([]byte, error) {
	c := model.Shape()
	at := (block*c.PagedLayers + layer) * c.RunBytes
	return kv[at : at+c.RunBytes], nil
}
func (kv flat) WritableRun(layer, block int) ([]byte, error) { return kv.Run(layer, block) }

func naive(t *testing.T, prompt []byte, s engine.Sampling) (text string) {
	t.Helper()
	m, err := model.Load()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := model.Encode(string(prompt))
	if err != nil {
		t.Fatal(err)
	}
	topP := float32(1)
	if s.TopP > 0 {
		topP = float32(s.TopP)
	}
	sampler, err := model.NewSampler(float32(s.Temperature), topP, s.Seed)
	if err != nil {
		t.Fatal(err)
	}
	c := model.Shape()
	room := (len(tokens)+int(s.MaxTokens))/c.BlockTokens + 1
	state := &model.State{KV: make(flat, room*c.PagedLayers*c.RunBytes), Ring: make([]byte, c.RingBytes), History: make([]byte, model.HistoryBytes)}
	model.ResetHistory(state.History)
	run := m.NewRunner()
	next := tokens
	for range s.MaxTokens {
		var logits []float32
		for _, token := range next {
			if logits, err = run.Forward([]int{token}, state, nil); err != nil {
				t.Fatal(err)
			}
		}
		token, err := sampler.Sample(logits)
		if err != nil {
			t.Fatal(err)
		}
		if token == model.EOS {
			break
		}
		text += string(model.Text(token))
		next = []int{token}
	}
	return text
}

func TestSixteenHandoffsAtOnceKeepApart(t *testing.T) {
	each(t, small, func(t *testing.T, r *rig) {
		want := map[int]result{}
		for _, n := range lengths {
			want[n] = r.aggregated(ask{prompt: promptOf(n), sampling: engine.Sampling{MaxTokens: 16, Temperature: 1, Seed: uint64(n)}})
		}
		var running sync.WaitGroup
		for i := range 16 {
			running.Go(func() {
				n := lengths[i%len(lengths)]
				got, err := r.handoff(ask{prompt: promptOf(n), sampling: engine.Sampling{MaxTokens: 16, Temperature: 1, Seed: uint64(n)}, salt: fmt.Sprint("tenant", i%3)})
				if err != nil || got.text != want[n].text {
					t.Errorf("%d tokens: %v\n%q\nwant %q", n, err, got.text, want[n].text)
				}
			})
		}
		running.Wait()
		r.clean()
	})
}

func TestTwoTenantsNeverShareAPrefix(t *testing.T) {
	each(t, small, func(t *testing.T, r *rig) {
		a := ask{prompt: promptOf(100), sampling: engine.Sampling{MaxTokens: 4}, salt: "one"}
		for _, c := range []struct {
			salt   string
			cached uint32
		}{{"one", 0}, {"two", 0}, {"one", 96}, {"two", 96}, {"", 0}, {"", 0}} {
			a.salt = c.salt
			got, err := r.handoff(a)
			if err != nil || got.sealed.CachedTokens != c.cached {
				t.Errorf("salt %q: %d tokens cached, want %d; %v", c.salt, got.sealed.CachedTokens, c.cached, err)
			}
		}
		r.clean()
	})
}

func TestStopStringsEndTheAnswer(t *testing.T) {
	r := newRig(t, small())
	a := ask{prompt: promptOf(65), sampling: engine.Sampling{MaxTokens: 40}}
	whole := r.aggregated(a)
	if len(whole.text) < 20 {
		t.Fatalf("answer %q is too short for this test", whole.text)
	}
	a.sampling.Stop = []string{whole.text[10:13]}
	got, err := r.handoff(a)
	if err != nil || got.finish != engine.FinishStop || len(got.text) > 10 || got.text != whole.text[:len(got.text)] {
		t.Errorf("%q %s %v, whole %q", got.text, got.finish, err, whole.text)
	}
}
