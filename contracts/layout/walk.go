package layout

// walk makes the copies of one cache for one rank of D.
type walk struct {
	r            *Reshard
	cache        int
	rank, tokens uint32
	// from and to give a block's piece and where in it the block begins.
	from, to func(layer, block uint32) (piece, at uint32)
	out      *merger
}

// run goes by D's memory: layer, then tokens that lie in one block at either side,
// then heads of one rank of P. K and V that lie together at both sides are walked
// together, so that a whole block is one copy.
func (w walk) run() {
	pc, dc := w.r.p.Caches[w.cache], w.r.d.Caches[w.cache]
	passes := [][]uint32{{0}, {1}}
	switch {
	case pc.Packing == Latent:
		passes = [][]uint32{{0}}
	case pc.Packing == PackedKV && dc.Packing == PackedKV:
		passes = [][]uint32{{0, 1}}
	}
	for layer := range pc.Layers {
		for _, parts := range passes {
			w.blocks(layer, parts)
		}
	}
}

func (w walk) blocks(layer uint32, parts []uint32) {
	p, d := w.r.p.BlockTokens, w.r.d.BlockTokens
	for t := uint32(0); t < w.tokens && w.out.going; {
		end := min(w.tokens, (t/p+1)*p, (t/d+1)*d)
		for _, part := range parts {
			w.heads(layer, part, t, end)
		}
		t = end
	}
}

// heads finds, for each head of the D rank, the rank of P that it is read from.
func (w walk) heads(layer, part, first, end uint32) {
	p, d, total := w.r.p, w.r.d, w.r.model.Heads[w.cache]
	pc, dc := p.Caches[w.cache], d.Caches[w.cache]
	begin := firstHead(w.rank, d.Parallel, total, dc.KVHeads)
	for h := begin; h < begin+dc.KVHeads; {
		rank, own := h/pc.KVHeads, h%pc.KVHeads
		count := min(pc.KVHeads-own, begin+dc.KVHeads-h)
		if p.Parallel > total { // one of its replicas
			replicas := p.Parallel / total
			rank, own, count = h*replicas+w.rank%replicas, 0, 1
		}
		w.tile(tile{layer: layer, part: part, first: first, end: end, rank: rank, source: own, target: h - begin, heads: count})
		h += count
	}
}

// tile is tokens by heads that lie in one block of one rank, at either side.
type tile struct {
	layer, part, first, end uint32
	rank                    uint32
	source, target, heads   uint32 // first head at either side, and how many
}

// tile cuts into the largest pieces that are whole at both sides; the merger joins
// what lies side by side.
func (w walk) tile(t tile) {
	pc, dc := w.r.p.Caches[w.cache], w.r.d.Caches[w.cache]
	vector := dc.HeadDim * dc.DType.Bits() / 8
	switch {
	case pc.Order == NHD && dc.Order == NHD:
		for i := t.first; i < t.end; i++ {
			w.copy(t, i, 0, t.heads*vector)
		}
	case pc.Order == HND && dc.Order == HND:
		for h := range t.heads {
			w.copy(t, t.first, h, (t.end-t.first)*vector)
		}
	case dc.Order == NHD:
		for i := t.first; i < t.end; i++ {
			for h := range t.heads {
				w.copy(t, i, h, vector)
			}
		}
	default:
		for h := range t.heads {
			for i := t.first; i < t.end; i++ {
				w.copy(t, i, h, vector)
			}
		}
	}
}

// copy emits bytes from one token and head on.
func (w walk) copy(t tile, token, head, bytes uint32) {
	source, sourceAt := w.r.p.locate(w.cache, t.layer, t.part, token, t.source+head, w.from)
	target, targetAt := w.r.d.locate(w.cache, t.layer, t.part, token, t.target+head, w.to)
	w.out.add(Copy{t.rank, source, sourceAt, target, targetAt, bytes})
}

// locate finds the vector of one token and head of K (part 0) or V. K and V apart
// are layers of pieces: K of layer l is 2l, its V 2l+1.
func (l Layout) locate(cache int, layer, part, token, head uint32, block func(layer, block uint32) (uint32, uint32)) (piece, at uint32) {
	c := l.Caches[cache]
	vector := c.HeadDim * c.DType.Bits() / 8
	inside := token % l.BlockTokens
	index := inside*c.KVHeads + head
	if c.Order == HND {
		index = head*l.BlockTokens + inside
	}
	if c.Packing == ApartKV {
		layer, part = 2*layer+part, 0
	}
	piece, at = block(layer, token/l.BlockTokens)
	return piece, at + part*l.BlockTokens*c.KVHeads*vector + index*vector
}
