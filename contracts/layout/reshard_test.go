package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

// naive fills one rank's pieces from first principles: element by element, by
// the words of the layout's own comments, sharing no code with the plan. Bytes
// that no token owns are 0xee.
func naive(l Layout, m Model, rank, tokens uint32) [][]byte {
	s := l.Shape("", tokens)
	pieces := make([][]byte, s.Pieces())
	for i := range pieces {
		p, _ := s.Place(uint32(i))
		pieces[i] = bytes.Repeat([]byte{0xee}, int(p.Bytes))
	}
	bt := int(l.BlockTokens)
	group, item := 0, 0
	for ci, c := range l.Caches {
		width := int(c.HeadDim) * int(c.DType.Bits()) / 8
		n, kinds := int(tokens), 2
		if c.Window > 0 {
			n = int(c.Window)
		}
		if c.Packing == Latent {
			kinds = 1
		}
		for layer := range int(c.Layers) {
			for kind := range kinds {
				for token := range n {
					for own := range int(c.KVHeads) {
						global := int(rank)*int(c.KVHeads) + own
						if l.Parallel > m.Heads[ci] {
							global = int(rank) * int(m.Heads[ci]) / int(l.Parallel)
						}
						var block []byte // of this layer, kind and token, alone
						pieceLayer, kindsInside := layer, kinds
						at := kind
						if c.Packing == ApartKV {
							pieceLayer, kindsInside, at = 2*layer+kind, 1, 0
						}
						size := kindsInside * bt * int(c.KVHeads) * width
						if c.Window > 0 {
							all := pieces[s.ItemPiece(item)]
							ring := all[pieceLayer*size*(n/bt):]
							block = ring[token/bt*size:][:size]
						} else {
							block = pieces[s.Piece(group, uint32(pieceLayer), uint32(token/bt))]
						}
						half := block[at*size/kindsInside:][:size/kindsInside]
						place := (token%bt)*int(c.KVHeads) + own
						if c.Order == HND {
							place = own*bt + token%bt
						}
						fill(half[place*width:][:width], ci, layer, kind, token, global)
					}
				}
			}
		}
		if c.Window > 0 {
			item++
		} else {
			group++
		}
	}
	for i, it := range l.Items {
		who := rank
		for _, class := range m.Replicated {
			if class == it.Class {
				who = 0
			}
		}
		fill(pieces[s.ItemPiece(item+i)], -1, i, int(who), 0, 0)
	}
	return pieces
}

// fill writes what only these coordinates have.
func fill(b []byte, coordinates ...int) {
	h := fnv.New64a()
	fmt.Fprint(h, coordinates)
	x := h.Sum64()
	for i := range b {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], x+uint64(i/8)*0x9e3779b97f4a7c15)
		b[i] = w[i%8] & 0x7f // never 0xee
	}
}

// apply runs a plan and fails on a byte that is written twice.
func apply(t *testing.T, r *Reshard, source [][][]byte, rank, tokens uint32) (out [][]byte, runs int) {
	t.Helper()
	s := r.d.Shape("", tokens)
	out = make([][]byte, s.Pieces())
	for i := range out {
		p, _ := s.Place(uint32(i))
		out[i] = bytes.Repeat([]byte{0xee}, int(p.Bytes))
	}
	r.Each(rank, tokens, func(c Copy) bool {
		to := out[c.Target][c.TargetAt : c.TargetAt+c.Bytes]
		for _, b := range to {
			if b != 0xee {
				t.Fatalf("%+v writes a byte again", c)
			}
		}
		copy(to, source[c.Rank][c.Source][c.SourceAt:c.SourceAt+c.Bytes])
		runs++
		return true
	})
	return out, runs
}

// vllm#42097, #28661, #42895 and sglang#22145: every pair of
// parallelism, block size, order and packing leaves at each rank of D what that
// rank's own prefill would have left.
func TestAReshardedStateIsWhatEachRankWouldHaveMade(t *testing.T) {
	rng := rand.New(rand.NewSource(4))
	pick := func(v ...uint32) uint32 { return v[rng.Intn(len(v))] }
	for n := range 120 {
		heads, dim, layers := pick(1, 2, 4, 8), pick(4, 8), pick(1, 2, 3)
		window := pick(0, 128)
		side := func(latent bool) Layout {
			l := Layout{BlockTokens: pick(16, 32, 128), Parallel: pick(1, 2, 4, 8)}
			c := Cache{Name: "kv", Layers: layers, HeadDim: dim, DType: "bfloat16", Packing: []Packing{PackedKV, ApartKV}[rng.Intn(2)], Order: []Order{NHD, HND}[rng.Intn(2)], KVHeads: max(1, heads/l.Parallel)}
			ring := c
			ring.Name, ring.Window = "ring", 128
			if latent {
				c.Packing, c.KVHeads = Latent, 1
			}
			l.Caches = []Cache{c}
			if window > 0 {
				l.Caches = append(l.Caches, ring)
			}
			l.Items = []Item{{"sampler", 24}}
			return l
		}
		latent := n%4 == 0
		m := Model{Heads: []uint32{heads}, Replicated: []string{"sampler"}}
		if latent {
			m.Heads[0] = 1
		}
		if window > 0 {
			m.Heads = append(m.Heads, heads)
		}
		p, d, tokens := side(latent), side(latent), uint32(1+rng.Intn(300))
		r, err := Plan(p, d, m)
		if err != nil {
			t.Fatalf("%+v to %+v: %v", p, d, err)
		}
		var source [][][]byte
		for rank := range p.Parallel {
			source = append(source, naive(p, m, rank, tokens))
		}
		for rank := range d.Parallel {
			got, _ := apply(t, r, source, rank, tokens)
			for i, want := range naive(d, m, rank, tokens) {
				if !bytes.Equal(got[i], want) {
					t.Fatalf("%+v to %+v, rank %d, %d tokens: piece %d differs", p, d, rank, tokens, i)
				}
			}
		}
	}
}

func TestEqualLayoutsAreOneCopyAPiece(t *testing.T) {
	l := reference()
	r, err := Plan(l, l, Model{Heads: []uint32{2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	m := Model{Heads: []uint32{2, 2}}
	_, runs := apply(t, r, [][][]byte{naive(l, m, 0, 160)}, 0, 160)
	s := l.Shape("", 160)
	if runs != int(s.Pieces()) {
		t.Fatalf("%d copies for %d pieces", runs, s.Pieces())
	}
}

func TestPairsThatCannotBeAreRefusedWithTheReason(t *testing.T) {
	base := func() Layout {
		return Layout{BlockTokens: 16, Parallel: 2, Caches: []Cache{{Name: "kv", Layers: 1, KVHeads: 2, HeadDim: 8, DType: "bfloat16", Packing: PackedKV, Order: NHD}},
			Items: []Item{{"ssm", 64}}}
	}
	m := Model{Heads: []uint32{4}}
	for name, f := range map[string]func(l *Layout, m *Model){
		"dtype":       func(l *Layout, _ *Model) { l.Caches[0].DType = "float16" },
		"dimension":   func(l *Layout, _ *Model) { l.Caches[0].HeadDim = 16 },
		"latent":      func(l *Layout, _ *Model) { l.Caches[0].Packing, l.Caches[0].KVHeads = Latent, 1 },
		"window":      func(l *Layout, _ *Model) { l.Caches[0].Window = 32 },
		"heads":       func(l *Layout, _ *Model) { l.Caches[0].KVHeads = 3 },
		"split items": func(l *Layout, _ *Model) { l.Parallel, l.Caches[0].KVHeads = 4, 1 },
		"no item":     func(l *Layout, _ *Model) { l.Items = nil },
		"no model":    func(_ *Layout, m *Model) { m.Heads = nil },
		"interior":    func(l *Layout, _ *Model) { l.Caches[0].Interior = "amx" },
	} {
		d, model := base(), m
		f(&d, &model)
		if _, err := Plan(base(), d, model); err == nil || handoff.CodeOf(err) != handoff.CodeMismatch && handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
