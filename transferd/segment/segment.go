// Package segment is an engine's memory as the daemon sees it, registered once
// per engine, never per request. Whatever its kind, every access goes through a
// bounds-checked extent.
package segment

import "github.com/surehand/surehand/contracts/handoff"

// Memory is one kind of memory. Its methods are called with extents that lie
// inside of it, by any goroutine. A call that returned has ended: nothing of it
// can land any more, unless its error is NotQuiescent. Errors are typed.
type Memory interface {
	// Kind names it.
	Kind() string
	// Bytes is its size.
	Bytes() uint64
	// View is the memory itself, nil when it is not mapped here.
	View(e Extent) []byte
	// Read copies extents out of the memory.
	Read(from []Extent, into [][]byte) error
	// Write copies into extents of the memory.
	Write(to []Extent, from [][]byte) error
	// Close gives it back; nothing may use it any more.
	Close() error
}

// Segment is one engine's memory.
type Segment struct{ Memory }

// IsReadOnly says whether the segment can be a source only.
func (s *Segment) IsReadOnly() bool {
	m, ok := s.Memory.(*mapped)
	return ok && m.readOnly
}

// Extent is the place of one piece.
type Extent struct {
	At     uint64
	Length uint32
}

// Extents gives the place of each piece of shape, whose offsets are in piece
// order, and refuses one that does not lie wholly inside the segment.
func (s *Segment) Extents(shape handoff.Shape, offsets []uint64) ([]Extent, error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	if uint32(len(offsets)) != shape.Pieces() {
		return nil, handoff.Errorf(handoff.CodeInvalid, "%d offsets for %d pieces", len(offsets), shape.Pieces())
	}
	out := make([]Extent, 0, len(offsets))
	add := func(n, length uint32) error {
		for range n {
			at := offsets[len(out)]
			if at > s.Bytes() || uint64(length) > s.Bytes()-at {
				return handoff.Errorf(handoff.CodeInvalid, "piece %d at %d+%d is outside the segment of %d bytes", len(out), at, length, s.Bytes())
			}
			out = append(out, Extent{at, length})
		}
		return nil
	}
	for _, g := range shape.Groups {
		if err := add(g.Layers*g.Blocks, g.BlockBytes); err != nil {
			return nil, err
		}
	}
	for _, it := range shape.Items {
		if err := add(1, it.Bytes); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Carve cuts one buffer, grown when it is too small, into a place per extent.
func Carve(buffer *[]byte, extents []Extent, into [][]byte) [][]byte {
	total := 0
	for _, e := range extents {
		total += int(e.Length)
	}
	if cap(*buffer) < total {
		*buffer = make([]byte, total)
	}
	b := (*buffer)[:total]
	for _, e := range extents {
		into = append(into, b[:e.Length:e.Length])
		b = b[e.Length:]
	}
	return into
}
