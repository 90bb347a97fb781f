package model

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func draws(t *testing.T, s *Sampler, n int) (tokens []int) {
	t.Helper()
	logits := make([]float32, vocab)
	for i := range n {
		for j := range logits {
			logits[j] = float32((j*7+i*13)%29) / 5
		}
		token, err := s.Sample(logits)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	return tokens
}

func newSampler(t *testing.T, temperature, topP float32, seed uint64) *Sampler {
	t.Helper()
	s, err := NewSampler(temperature, topP, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestARestoredSamplerGoesOnWithTheSameRun(t *testing.T) {
	want := draws(t, newSampler(t, 0.9, 0.95, 42), 100)
	first := newSampler(t, 0.9, 0.95, 42)
	item := make([]byte, SamplerBytes)
	draws(t, first, 37)
	if err := first.Save(item); err != nil {
		t.Fatal(err)
	}
	second, err := RestoreSampler(item)
	if err != nil {
		t.Fatal(err)
	}
	logits := make([]float32, vocab)
	for i := 37; i < 100; i++ {
		for j := range logits {
			logits[j] = float32((j*7+i*13)%29) / 5
		}
		if got, _ := second.Sample(logits); got != want[i] {
			t.Fatalf("draw %d is %d, without the handoff %d", i, got, want[i])
		}
	}
}

func TestSeedsMatterAndGreedyTakesTheGreatest(t *testing.T) {
	if slices.Equal(draws(t, newSampler(t, 1, 1, 1), 50), draws(t, newSampler(t, 1, 1, 2), 50)) {
		t.Error("two seeds drew the same")
	}
	logits := make([]float32, vocab)
	logits[SEP], logits[EOS] = 9, 3 // SEP is never an answer
	if got, err := newSampler(t, 0, 1, 1).Sample(logits); got != EOS || err != nil {
		t.Errorf("greedy drew %d, %v", got, err)
	}
}

func TestTopPCutsTheTail(t *testing.T) {
	s := newSampler(t, 1, 0.49, 3)
	logits := make([]float32, vocab)
	logits['a'], logits['b'] = 20, 20
	for range 200 {
		if got, _ := s.Sample(logits); got != 'a' {
			t.Fatalf("drew %d from the half that top_p cuts off", got)
		}
	}
}

func TestNoTokenIsDrawnFromDamage(t *testing.T) {
	s := newSampler(t, 0, 1, 1)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		logits := make([]float32, vocab)
		logits[259] = bad
		if _, err := s.Sample(logits); !errors.Is(err, ErrNotFinite) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	item := make([]byte, SamplerBytes)
	for i := range item {
		item[i] = 0xFF
	}
	if _, err := RestoreSampler(item); !errors.Is(err, ErrState) {
		t.Errorf("poisoned sampler: %v", err)
	}
	if _, err := RestoreSampler(make([]byte, SamplerBytes)); !errors.Is(err, ErrState) {
		t.Errorf("zeroed sampler: %v", err) // top_p 0 is none
	}
	if _, err := RestoreSampler(nil); !errors.Is(err, ErrState) {
		t.Errorf("missing sampler: %v", err)
	}
	if _, err := FirstToken([]byte{0xFF, 0xFF, 0xFF, 0xFF}); !errors.Is(err, ErrState) {
		t.Errorf("poisoned first token: %v", err)
	}
}

func TestSamplerParametersAreBounded(t *testing.T) {
	nan := float32(math.NaN())
	for _, p := range [][2]float32{{-1, 1}, {nan, 1}, {11, 1}, {1, 0}, {1, 1.1}, {1, nan}} {
		if _, err := NewSampler(p[0], p[1], 0); !errors.Is(err, ErrInput) {
			t.Errorf("%v: %v", p, err)
		}
	}
}
