package model

import "testing"

// The draws of a seed behind n tokens are those of one run, for every n.
func TestASamplerThatSkipsDrawsAsOneRun(t *testing.T) {
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = float32(i%17) / 5
	}
	draw := func(s *Sampler) int {
		token, err := s.Sample(logits)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for _, temperature := range []float32{0, 0.7} {
		one, err := NewSampler(temperature, 0.9, 42)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 40 {
			late, err := NewSampler(temperature, 0.9, 42)
			if err != nil {
				t.Fatal(err)
			}
			late.Skip(n)
			if want, got := draw(one), draw(late); want != got {
				t.Fatalf("temperature %g, after %d tokens: %d, in one run %d", temperature, n, got, want)
			}
		}
	}
}
