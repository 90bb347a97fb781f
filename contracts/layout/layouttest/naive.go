// Package layouttest is the naive reference that plans from layout to layout are
// held against: state written element by element, from the words of contracts/layout
// alone, sharing no code with a plan.
package layouttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/surehand/surehand/contracts/layout"
)

// Nobody is what bytes are that no token owns; no state has it.
const Nobody = 0xee

// Whole is the state of every piece of an engine's whole shape.
func Whole(l layout.Layout, m layout.Model, tokens uint32) [][]byte {
	var groups, items [][]byte
	n := 0
	for _, c := range l.Caches {
		if c.Window > 0 {
			n++
		}
	}
	n += len(l.Items)
	for r := range l.Parallel {
		own := rank(l, m, r, tokens)
		groups = append(groups, own[:len(own)-n]...)
		items = append(items, own[len(own)-n:]...)
	}
	return append(groups, items...)
}

// rank fills one rank's pieces from first principles: element by element, by
// the words of the layout's own comments, sharing no code with the plan. Bytes
// that no token owns are 0xee.
func rank(l layout.Layout, m layout.Model, rank, tokens uint32) [][]byte {
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
		if c.Packing == layout.Latent {
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
						if c.Packing == layout.ApartKV {
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
						if c.Order == layout.HND {
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

// Pair draws two layouts that one model can have at either side: tensor parallelism
// 1, 2, 4 or 8 with or without replicated heads, blocks of 16 to 128 tokens, both
// orders, K and V packed or apart, or a latent cache; at times a ring; an item that every
// rank has, and at equal parallelism at times one of each rank's own.
// Draw gives a number below n.
func Pair(draw func(n int) int) (p, d layout.Layout, m layout.Model) {
	pick := func(v ...uint32) uint32 { return v[draw(len(v))] }
	heads, dim, layers := pick(1, 2, 4, 8), pick(4, 8), pick(1, 2, 3)
	latent, window := draw(4) == 0, draw(2) == 0
	side := func() layout.Layout {
		l := layout.Layout{BlockTokens: pick(16, 32, 128), Parallel: pick(1, 2, 4, 8)}
		c := layout.Cache{Name: "kv", Layers: layers, HeadDim: dim, DType: "bfloat16", Packing: []layout.Packing{layout.PackedKV, layout.ApartKV}[draw(2)],
			Order: []layout.Order{layout.NHD, layout.HND}[draw(2)], KVHeads: max(1, heads/l.Parallel)}
		ring := c
		ring.Name, ring.Window = "ring", 128
		if latent {
			c.Packing, c.KVHeads = layout.Latent, 1
		}
		l.Caches = []layout.Cache{c}
		if window {
			l.Caches = append(l.Caches, ring)
		}
		l.Items = []layout.Item{{Class: "sampler", Bytes: 24}}
		return l
	}
	m = layout.Model{Heads: []uint32{heads}, Replicated: []string{"sampler"}}
	if latent {
		m.Heads[0] = 1
	}
	if window {
		m.Heads = append(m.Heads, heads)
	}
	p, d = side(), side()
	if p.Parallel == d.Parallel && draw(2) == 0 {
		own := layout.Item{Class: "ssm", Bytes: 40}
		p.Items, d.Items = append(p.Items, own), append(d.Items, own)
	}
	return p, d, m
}
