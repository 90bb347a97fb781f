package vllm

import (
	"slices"
	"strings"
	"testing"

	"github.com/surehand/surehand/e2e/pair"
)

const corpus = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. "

func TestTokensEqualThoseOfOneEngine(t *testing.T) {
	a := pair.Ask{Prompt: strings.Repeat(corpus, 4), Tokens: 12}
	want, err := a.Send(t.Context(), rig.Plain.URL)
	t.Log(want, err)
	got, err := a.Send(t.Context(), rig.URL())
	t.Log(got, err)
	if !slices.Equal(got.Tokens, want.Tokens) {
		t.Error("different")
	}
	c, err := pair.Look(t.Context(), rig.D.URL)
	t.Log(c.Source(pair.External), c.Source(pair.Local), c.Source(pair.LocalHit), err)
	p, err := pair.Look(t.Context(), rig.P.URL)
	t.Log(p.Has(pair.Expired), p.Has(pair.TooLate), p.Sum(pair.Usage, "", ""), p["process_start_time_seconds"], p[pair.CacheInfo])
}
