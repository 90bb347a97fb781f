package model

import "fmt"

// Runner computes for one goroutine at a time; it owns the scratch memory.
type Runner struct {
	m                       *Model
	x, norm, q, mixed, proj []float32 // MaxChunk rows of dim
	k, v                    []float32 // MaxChunk rows of kvDim
	up                      []float32 // MaxChunk rows of hidden
	keys, values            []float32 // a layer's K and V as one stretch, kvDim a position
	scores                  []float32 // groupHeads a position
	logits                  []float32
}

// NewRunner allocates the scratch memory of one goroutine, about 3.5 MB.
func (m *Model) NewRunner() *Runner {
	rows := func(n, columns int) []float32 { return make([]float32, n*columns) }
	return &Runner{
		m: m, x: rows(MaxChunk, dim), norm: rows(MaxChunk, dim), q: rows(MaxChunk, dim),
		mixed: rows(MaxChunk, dim), proj: rows(MaxChunk, dim),
		k: rows(MaxChunk, kvDim), v: rows(MaxChunk, kvDim), up: rows(MaxChunk, hidden),
		keys: rows(MaxPositions, kvDim), values: rows(MaxPositions, kvDim),
		scores: rows(MaxPositions, groupHeads), logits: rows(1, vocab),
	}
}

// Forward computes tokens at positions State.Pos and on, writes their KV, ring
// rows and history, and returns the logits after the last of them, valid until
// the Runner's next call. onLayer, if not nil, is told each paged layer (0..2)
// when the KV of all these tokens stands written in it.
//
// It is not idempotent: the ring and the history move on. After an error the
// state is half written and the sequence must be given up.
func (r *Runner) Forward(tokens []int, s *State, onLayer func(layer int)) ([]float32, error) {
	next, err := r.embed(tokens, s)
	if err != nil {
		return nil, err
	}
	n, paged := len(tokens), 0
	for l := range layers {
		r.project(l, n, s.Pos)
		if l == ringLayer {
			r.attendRing(n, s)
		} else {
			if err := r.store(paged, n, s); err != nil {
				return nil, err
			}
			if onLayer != nil {
				onLayer(paged)
			}
			if err := r.attendPaged(paged, n, s); err != nil {
				return nil, err
			}
			paged++
		}
		r.finish(l, n)
	}
	s.Pos += n
	writeHistory(s.History, next)
	normalise(r.norm, r.x[(n-1)*dim:n*dim], 1)
	r.m.head.apply(r.logits, r.norm, 1)
	if !finite(r.logits) {
		return nil, ErrNotFinite
	}
	return r.logits, nil
}

// embed fills x with the tokens' inputs and returns the history after them.
func (r *Runner) embed(tokens []int, s *State) (next [history]uint16, err error) {
	if err := s.check(tokens); err != nil {
		return next, err
	}
	if next, err = readHistory(s.History); err != nil {
		return next, err
	}
	for i, token := range tokens {
		row := r.x[i*dim : (i+1)*dim]
		clear(row)
		r.m.embed.addRow(row, token)
		for g, bucket := range buckets(next, token) {
			r.m.grams[g].addRow(row, bucket)
		}
		next = pushed(next, token)
	}
	return next, nil
}

// project computes q, k and v of a layer for n rows from position on.
func (r *Runner) project(l, n, position int) {
	w := &r.m.layer[l]
	normalise(r.norm, r.x, n)
	w.q.apply(r.q, r.norm, n)
	w.k.apply(r.k, r.norm, n)
	w.v.apply(r.v, r.norm, n)
	if l != ringLayer {
		return
	}
	for i := range n {
		by := &r.m.rotation[position+i]
		rotate(r.q[i*dim:(i+1)*dim], by)
		rotate(r.k[i*kvDim:(i+1)*kvDim], by)
	}
}

// kv is row i of the k and v just projected.
func (r *Runner) kv(i int) (k, v []float32) {
	return r.k[i*kvDim : (i+1)*kvDim], r.v[i*kvDim : (i+1)*kvDim]
}

// store writes the rows' K and V into the sequence's blocks.
func (r *Runner) store(paged, n int, s *State) error {
	for i := range n {
		run, err := s.KV.WritableRun(paged, (s.Pos+i)/BlockTokens)
		if err != nil {
			return err
		}
		if len(run) != runBytes {
			return fmt.Errorf("%w: run of %d bytes", ErrState, len(run))
		}
		k, v := r.kv(i)
		putRow(run, k, v, s.Pos+i)
	}
	return nil
}

// attendPaged reads the layer's K and V of all positions so far, the rows' own
// among them, and attends.
func (r *Runner) attendPaged(paged, n int, s *State) error {
	for at := 0; at < s.Pos+n; at += BlockTokens {
		run, err := s.KV.Run(paged, at/BlockTokens)
		if err != nil {
			return err
		}
		if len(run) != runBytes {
			return fmt.Errorf("%w: run of %d bytes", ErrState, len(run))
		}
		getRows(r.keys[at*kvDim:], r.values[at*kvDim:], run, 0, min(BlockTokens, s.Pos+n-at))
	}
	for i := range n {
		attend(r.mixed[i*dim:], r.q[i*dim:], r.keys, r.values, s.Pos+i+1, &slopes, r.scores)
	}
	return nil
}

// attendRing lays out what the ring still has of the older positions, then the
// rows' own K and V, attends, and only then lets the rows overwrite the ring.
func (r *Runner) attendRing(n int, s *State) {
	begin := max(0, s.Pos-window+1)
	for at := begin; at < s.Pos; {
		first := at % BlockTokens
		last := min(BlockTokens, first+s.Pos-at)
		to := (at - begin) * kvDim
		getRows(r.keys[to:], r.values[to:], s.ringRun(at), first, last)
		at += last - first
	}
	own := (s.Pos - begin) * kvDim
	copy(r.keys[own:], r.k[:n*kvDim])
	copy(r.values[own:], r.v[:n*kvDim])
	for i := range n {
		first := max(0, s.Pos+i-window+1)
		skip := (first - begin) * kvDim
		attend(r.mixed[i*dim:], r.q[i*dim:], r.keys[skip:], r.values[skip:], s.Pos+i+1-first, &flat, r.scores)
	}
	r.storeRing(n, s)
}

func (r *Runner) storeRing(n int, s *State) {
	for i := range n {
		k, v := r.kv(i)
		putRow(s.ringRun(s.Pos+i), k, v, s.Pos+i)
	}
}

// finish adds the attention's output and the feed-forward to x.
func (r *Runner) finish(l, n int) {
	w := &r.m.layer[l]
	w.o.apply(r.proj, r.mixed, n)
	add(r.x[:n*dim], r.proj)
	normalise(r.norm, r.x, n)
	w.up.apply(r.up, r.norm, n)
	squareRelu(r.up[:n*hidden])
	w.down.apply(r.proj, r.up, n)
	add(r.x[:n*dim], r.proj)
}
