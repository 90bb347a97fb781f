package layout_test

import (
	"bytes"
	"fmt"
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
	seen := map[string]bool{}
	for n := range 2000 {
		p, d, m := layouttest.Pair(rng.Intn)
		known := len(seen)
		for _, name := range names(p, d, m) {
			seen[name] = true
		}
		if n >= 60 && len(seen) == known {
			continue // as many as there are kinds, and some more of any
		}
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
	for _, name := range allNames() {
		if !seen[name] {
			t.Errorf("%s was not tried", name)
		}
	}
}

// names are what a pair of layouts is an example of.
func names(p, d layout.Layout, m layout.Model) (out []string) {
	a, b := p.Caches[0], d.Caches[0]
	out = append(out, fmt.Sprintf("ranks %d to %d", p.Parallel, d.Parallel), fmt.Sprintf("blocks of %d to %d", p.BlockTokens, d.BlockTokens))
	if a.Packing == layout.Latent {
		return append(out, fmt.Sprintf("latent, ranks %d to %d", p.Parallel, d.Parallel))
	}
	for side, l := range map[string]layout.Layout{"P": p, "D": d} {
		if m.Heads[0] < l.Parallel {
			out = append(out, "heads on several ranks of "+side)
		}
	}
	out = append(out, fmt.Sprintf("order %s to %s", a.Order, b.Order), fmt.Sprintf("packing %s to %s", a.Packing, b.Packing))
	if len(p.Caches) > 1 {
		out = append(out, fmt.Sprintf("ring, order %s to %s", a.Order, b.Order), fmt.Sprintf("ring, packing %s to %s", a.Packing, b.Packing),
			fmt.Sprintf("ring, blocks of %d to %d", p.BlockTokens, d.BlockTokens), fmt.Sprintf("ring, ranks %d to %d", p.Parallel, d.Parallel))
	}
	if len(p.Items) > 1 {
		return append(out, "an item of each rank's own")
	}
	return append(out, fmt.Sprintf("an item that ranks hold alike, %t", p.Parallel == d.Parallel))
}

// allNames is what must have been tried.
func allNames() []string {
	out := []string{"heads on several ranks of P", "heads on several ranks of D", "an item of each rank's own", "an item that ranks hold alike, true", "an item that ranks hold alike, false"}
	orders, packings, blocks := []layout.Order{layout.NHD, layout.HND}, []layout.Packing{layout.PackedKV, layout.ApartKV}, []uint32{16, 128}
	for _, p := range []uint32{1, 2, 4, 8} {
		for _, d := range []uint32{1, 2, 4, 8} {
			for _, kind := range []string{"", "latent, ", "ring, "} {
				out = append(out, fmt.Sprintf("%sranks %d to %d", kind, p, d))
			}
		}
	}
	for i := range 4 {
		at := func(bit int) int { return i >> bit & 1 }
		for _, kind := range []string{"", "ring, "} {
			out = append(out, fmt.Sprintf("%sorder %s to %s", kind, orders[at(0)], orders[at(1)]), fmt.Sprintf("%spacking %s to %s", kind, packings[at(0)], packings[at(1)]),
				fmt.Sprintf("%sblocks of %d to %d", kind, blocks[at(0)], blocks[at(1)]))
		}
	}
	return out
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
