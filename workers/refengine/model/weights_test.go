package model

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"testing"
)

// The training script computes the same function by another road (JAX, whole
// sequence at once); the two must agree up to rounding.
func TestLogitsAgreeWithTheTrainingScript(t *testing.T) {
	file, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Tokens []int
		Logits []float32
	}
	if err := json.Unmarshal(file, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Tokens) <= window || len(golden.Logits) != vocab {
		t.Fatalf("golden of %d tokens, %d logits", len(golden.Tokens), len(golden.Logits))
	}
	got := forward(t, load(t).NewRunner(), newState(len(golden.Tokens)), golden.Tokens, 64)
	for i, want := range golden.Logits {
		if math.Abs(float64(got[i]-want)) > 0.002 {
			t.Errorf("logit %d is %v, the script says %v", i, got[i], want)
		}
	}
}

func TestDamagedWeightsAreRefused(t *testing.T) {
	for name, file := range map[string][]byte{
		"empty":     nil,
		"truncated": weights[:len(weights)-1],
		"flipped":   flipped(weights, 123_456),
		"header":    flipped(weights, 8),
		"checksum":  flipped(weights, len(weights)-1),
	} {
		if _, err := Parse(file); !errors.Is(err, ErrWeights) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func flipped(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

func TestRevisionNamesTheWeights(t *testing.T) {
	if r := load(t).Revision(); len(r) != 64 {
		t.Errorf("revision %q", r)
	}
	if len(weights) > 4<<20 {
		t.Errorf("weights of %d bytes, the limit is 4 MiB", len(weights))
	}
}
