package layout_test

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/layout/layouttest"
)

// apply runs a plan over all ranks of P and fails on a byte that is written twice,
// and on a piece of D that gets another number of bytes than it needs.
func apply(t *testing.T, r *layout.Reshard, source [][]byte, tokens uint32) (out [][]byte, runs int) {
	t.Helper()
	b := r.For(tokens)
	s := b.Targets("m")
	out = make([][]byte, s.Pieces())
	for i := range out {
		p, _ := s.Place(uint32(i))
		out[i] = bytes.Repeat([]byte{layouttest.Nobody}, int(p.Bytes))
	}
	got := make([]uint32, len(out))
	var parts []layout.Part
	for i := range b.Sources("m").Pieces() {
		parts = b.Parts(i, parts[:0])
		for _, c := range parts {
			to := out[c.Target][c.TargetAt : c.TargetAt+c.Bytes]
			for _, b := range to {
				if b != layouttest.Nobody {
					t.Fatalf("%+v writes a byte again", c)
				}
			}
			copy(to, source[i][c.At:c.At+c.Bytes])
			got[c.Target] += c.Bytes
			runs++
		}
	}
	for i, n := range got {
		if n != b.Needs(uint32(i)) {
			t.Fatalf("piece %d got %d bytes, needs %d", i, n, b.Needs(uint32(i)))
		}
	}
	return out, runs
}

// vllm-project/vllm#42097, #28661, #42895 and sgl-project/sglang#22145: every pair of
// parallelism, block size, order and packing leaves at each rank of D what that
// rank's own prefill would have left.
func TestAReshardedStateIsWhatEachRankWouldHaveMade(t *testing.T) {
	rng := rand.New(rand.NewSource(4))
	for range 60 {
		p, d, m := layouttest.Pair(rng.Intn)
		tokens := uint32(1 + rng.Intn(300))
		r, err := layout.Plan(p, d, m)
		if err != nil {
			t.Fatalf("%+v to %+v: %v", p, d, err)
		}
		got, _ := apply(t, r, layouttest.Whole(p, m, tokens), tokens)
		for i, want := range layouttest.Whole(d, m, tokens) {
			if !bytes.Equal(got[i], want) {
				t.Fatalf("%+v to %+v, %d tokens: piece %d differs", p, d, tokens, i)
			}
		}
	}
}

func TestEqualLayoutsAreOneCopyAPiece(t *testing.T) {
	rng := rand.New(rand.NewSource(5))
	for range 20 {
		l, _, m := layouttest.Pair(rng.Intn)
		r, err := layout.Plan(l, l, m)
		if err != nil {
			t.Fatal(err)
		}
		tokens := 3 * l.BlockTokens
		b := r.For(tokens)
		for i := range b.Sources("m").Pieces() {
			if parts := b.Parts(i, nil); len(parts) > int(l.Parallel) || len(parts) == 1 && parts[0].Bytes != b.Needs(parts[0].Target) {
				t.Fatalf("%+v: piece %d is cut into %d", l, i, len(parts))
			}
		}
	}
}

func TestPairsThatCannotBeAreRefusedWithTheReason(t *testing.T) {
	base := func() layout.Layout {
		return layout.Layout{BlockTokens: 16, Parallel: 2, Caches: []layout.Cache{{Name: "kv", Layers: 1, KVHeads: 2, HeadDim: 8, DType: "bfloat16", Packing: layout.PackedKV, Order: layout.NHD}},
			Items: []layout.Item{{"ssm", 64}}}
	}
	m := layout.Model{Heads: []uint32{4}}
	for name, f := range map[string]func(l *layout.Layout, m *layout.Model){
		"dtype":       func(l *layout.Layout, _ *layout.Model) { l.Caches[0].DType = "float16" },
		"dimension":   func(l *layout.Layout, _ *layout.Model) { l.Caches[0].HeadDim = 16 },
		"latent":      func(l *layout.Layout, _ *layout.Model) { l.Caches[0].Packing, l.Caches[0].KVHeads = layout.Latent, 1 },
		"window":      func(l *layout.Layout, _ *layout.Model) { l.Caches[0].Window = 32 },
		"heads":       func(l *layout.Layout, _ *layout.Model) { l.Caches[0].KVHeads = 3 },
		"split items": func(l *layout.Layout, _ *layout.Model) { l.Parallel, l.Caches[0].KVHeads = 4, 1 },
		"no item":     func(l *layout.Layout, _ *layout.Model) { l.Items = nil },
		"no model":    func(_ *layout.Layout, m *layout.Model) { m.Heads = nil },
		"interior":    func(l *layout.Layout, _ *layout.Model) { l.Caches[0].Interior = "amx" },
	} {
		d, model := base(), m
		f(&d, &model)
		if _, err := layout.Plan(base(), d, model); err == nil || handoff.CodeOf(err) != handoff.CodeMismatch && handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
