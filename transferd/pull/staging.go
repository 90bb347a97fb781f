package pull

import (
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/segment"
)

// Pieces that do not lie at D as they lie at P, and pieces of memory that has no
// views, arrive in slots of a staging ring and are scattered from there.
//
// Slots are fenced like blocks. A slot that is being filled may be written by
// whatever was asked for, so it is nobody else's until the batch landed or the
// connection is destroyed; a batch of a connection that is gone is never
// scattered. And a slot is not D's memory: the scatter posts its writes first,
// which a target that is over refuses, so a late byte can reach a slot, never D.

// slot holds one batch.
type slot struct {
	life   uint64 // of the connection that fills it
	buffer []byte
	places [][]byte // one a staged piece, nil for a piece that is read in place

	pieces []uint32 // that are right, with where their bytes go
	to     []segment.Extent
	from   [][]byte
}

// scatter notes where the bytes of a piece in the slot go.
func (s *slot) scatter(f *fit, piece uint32, bytes []byte) {
	s.pieces = append(s.pieces, piece)
	for _, c := range f.cut(piece) {
		s.to = append(s.to, f.landing.Extent(c.Target, c.TargetAt, c.Bytes))
		s.from = append(s.from, bytes[c.At:][:c.Bytes])
	}
}

// ring holds the slots of one pull: those being filled, by the first piece of
// their batch. One batch a stream is on its way, so they are few.
type ring struct {
	pool    *sync.Pool // of *slot, shared by all pulls
	life    uint64     // of the present connection
	filling map[uint32]*slot
}

// take begins to fill a slot with the pieces that places has no place for.
func (r *ring) take(entries []wire.Entry, places [][]byte) {
	total := 0
	for i, e := range entries {
		if places[i] == nil {
			total += int(e.Length)
		}
	}
	if total == 0 {
		return
	}
	s := r.pool.Get().(*slot)
	if cap(s.buffer) < total {
		s.buffer = make([]byte, total)
	}
	s.life, s.places = r.life, s.places[:0]
	b := s.buffer[:total]
	for i, e := range entries {
		if places[i] != nil {
			s.places = append(s.places, nil)
			continue
		}
		places[i], b = b[:e.Length:e.Length], b[e.Length:]
		s.places = append(s.places, places[i])
	}
	if r.filling == nil {
		r.filling = map[uint32]*slot{}
	}
	r.filling[entries[0].Piece] = s
}

// full ends the filling of a batch's slot, nil when it has none. The slot goes
// back by give.
func (r *ring) full(entries []wire.Entry) (*slot, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	s := r.filling[entries[0].Piece]
	if s == nil {
		return nil, nil
	}
	if s.life != r.life || len(s.places) != len(entries) {
		return nil, handoff.Errorf(handoff.CodeInternal, "a batch of a connection that is gone")
	}
	delete(r.filling, entries[0].Piece)
	return s, nil
}

func (r *ring) give(s *slot) {
	if s != nil {
		s.pieces, s.to, s.from = s.pieces[:0], s.to[:0], s.from[:0]
		r.pool.Put(s)
	}
}

// destroyed says that the connection is gone and that nothing fills a slot of it
// any more: they are free.
func (r *ring) destroyed() {
	for _, s := range r.filling {
		r.give(s)
	}
	clear(r.filling)
	r.life++
}
