package layout

import "github.com/surehand/surehand/contracts/handoff"

// Part is bytes of a piece of P that are bytes of a piece of D.
type Part struct {
	At       uint32 // in P's piece
	Target   uint32 // piece of D's whole shape
	TargetAt uint32
	Bytes    uint32
}

// Bound is a plan for a prompt of a known length. It remembers the pattern of the
// pieces that it has cut, since blocks repeat; not safe for concurrent use.
type Bound struct {
	r        *Reshard
	p, d     side
	patterns map[kindOf][]relative
}

// kindOf names pieces that are cut alike, but for layer and block.
type kindOf struct {
	cache        int
	rank         uint32
	part         uint32 // of caches apart
	phase, count uint32 // first token within D's block, tokens
}

// relative is a Part before its layer and block are known.
type relative struct {
	at, rank, part, block, targetAt, bytes uint32 // of a ring: targetAt is in all of it
}

// For binds the plan to a prompt length.
func (r *Reshard) For(tokens uint32) *Bound {
	return &Bound{r: r, p: newSide(r.p, tokens), d: newSide(r.d, tokens), patterns: map[kindOf][]relative{}}
}

// Sources and Targets are the shapes at either side, of all ranks.
func (b *Bound) Sources(revision string) handoff.Shape {
	return b.r.p.Whole(revision, b.p.shape.Tokens)
}

// Targets is what Sources becomes.
func (b *Bound) Targets(revision string) handoff.Shape {
	return b.r.d.Whole(revision, b.d.shape.Tokens)
}

// Needs is how many bytes come into a piece of D before it is whole.
func (b *Bound) Needs(target uint32) uint32 { return b.d.holds(target) }

// Parts cuts a piece of P's whole shape, runs merged. None: nobody needs it, for
// another rank has the same.
func (b *Bound) Parts(piece uint32, into []Part) []Part {
	if piece >= b.p.pieces() {
		return into
	}
	rank, own := b.p.find(piece)
	place, _ := b.p.shape.Place(own)
	cache := b.p.cache(place)
	if cache < 0 {
		return b.item(rank, own, place.Bytes, into)
	}
	k := kindOf{cache: cache, rank: rank}
	var layer, block uint32 // of D
	if place.Group >= 0 {
		layer = place.Layer
		if b.p.Caches[cache].Packing == ApartKV {
			layer, k.part = layer/2, layer%2
		}
		first := place.Block * b.p.BlockTokens
		block, k.phase = first/b.d.BlockTokens, first%b.d.BlockTokens
		k.count = min(b.p.BlockTokens, b.p.shape.Tokens-first)
	}
	pattern, known := b.patterns[k]
	if !known {
		pattern = b.cut(k, place.Group < 0)
		b.patterns[k] = pattern
	}
	apart := place.Group >= 0 && b.d.Caches[cache].Packing == ApartKV
	for _, r := range pattern {
		l := layer
		if apart {
			l = 2*l + r.part
		}
		target, at := b.d.piece(cache, l, block+r.block)
		into = append(into, Part{r.at, b.d.whole(r.rank, target), at + r.targetAt, r.bytes})
	}
	return into
}

// item goes to the same rank, or from the first rank to all.
func (b *Bound) item(rank, own, bytes uint32, into []Part) []Part {
	item := own - b.p.paged
	at := b.d.paged + item
	if b.r.p.Parallel == b.r.d.Parallel {
		return append(into, Part{0, b.d.whole(rank, at), 0, bytes})
	}
	if rank > 0 {
		return into
	}
	for to := range b.r.d.Parallel {
		into = append(into, Part{0, b.d.whole(to, at), 0, bytes})
	}
	return into
}

// cut makes the pattern of a kind of piece: for each use, block of D and K or V,
// the largest copies that are whole at both sides.
func (b *Bound) cut(k kindOf, ring bool) []relative {
	c := b.p.Caches[k.cache]
	layers, passes, first, end := uint32(1), [][]uint32{{0, 1}}, k.phase, k.phase+k.count
	switch {
	case c.Packing == Latent:
		passes = [][]uint32{{0}}
	case c.Packing == ApartKV && ring:
		passes = [][]uint32{{0}, {1}}
	case c.Packing == ApartKV:
		passes = [][]uint32{{k.part}}
	}
	if ring {
		layers, first, end = c.Layers, 0, c.Window
	}
	m := merger{}
	for _, u := range b.r.uses[k.cache][k.rank] {
		for layer := range layers {
			for _, parts := range passes {
				b.tokens(&m, tile{cache: k.cache, layer: layer, first: first, end: end, start: first, ring: ring, use: u}, parts)
			}
		}
	}
	return m.out
}

// tokens walks a stretch of tokens block by block of either side.
func (b *Bound) tokens(m *merger, t tile, parts []uint32) {
	for at, end := t.first, t.end; at < end; at = t.end {
		t.first, t.end = at, min(end, (at/b.d.BlockTokens+1)*b.d.BlockTokens)
		if t.ring {
			t.end = min(t.end, (at/b.p.BlockTokens+1)*b.p.BlockTokens)
		}
		for _, t.part = range parts {
			b.tile(m, t)
		}
	}
}

// tile is tokens by heads that lie in one block at either side.
type tile struct {
	cache             int
	layer, part       uint32
	first, end, start uint32 // tokens, counted from a block of D; start is P's piece's first
	ring              bool
	use
}

func (b *Bound) tile(m *merger, t tile) {
	pc, dc := b.p.Caches[t.cache], b.d.Caches[t.cache]
	width := dc.HeadDim * dc.DType.Bits() / 8
	n, heads := t.end-t.first, t.heads
	switch {
	case pc.Order == NHD && dc.Order == NHD:
		for i := range n {
			b.copy(m, t, t.first+i, 0, heads*width)
		}
	case pc.Order == HND && dc.Order == HND:
		for h := range heads {
			b.copy(m, t, t.first, h, n*width)
		}
	case pc.Order == HND:
		for h := range heads {
			for i := range n {
				b.copy(m, t, t.first+i, h, width)
			}
		}
	default:
		for i := range n {
			for h := range heads {
				b.copy(m, t, t.first+i, h, width)
			}
		}
	}
}

// copy emits bytes from one token and head on.
func (b *Bound) copy(m *merger, t tile, token, head, bytes uint32) {
	own := token // in P's piece
	if !t.ring {
		own -= t.start
	}
	layer, block, at := b.p.vector(t.cache, t.layer, t.part, own, t.source+head)
	toLayer, to, targetAt := b.d.vector(t.cache, t.layer, t.part, token, t.target+head)
	r := relative{at: at, rank: t.rank, part: t.part, block: to, targetAt: targetAt, bytes: bytes}
	if t.ring {
		_, base := b.p.piece(t.cache, layer, block)
		_, toBase := b.d.piece(t.cache, toLayer, to)
		r = relative{at: base + at, rank: t.rank, targetAt: toBase + targetAt, bytes: bytes}
	}
	m.add(r)
}

// merger joins copies that go on where the last one ended. K and V that lie
// together at D are one piece, so that a whole block is one copy.
type merger struct{ out []relative }

func (m *merger) add(c relative) {
	if n := len(m.out); n > 0 {
		l := &m.out[n-1]
		if c.rank == l.rank && c.block == l.block && c.at == l.at+l.bytes && c.targetAt == l.targetAt+l.bytes {
			l.bytes += c.bytes
			return
		}
	}
	m.out = append(m.out, c)
}
