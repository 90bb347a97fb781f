// Package segment is an engine's memory as the daemon sees it: a sealed memfd
// mapped once per engine, never per request, in which every access goes through
// a bounds-checked extent.
package segment

import (
	"os"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

// Segment is one mapped memory. Its owner closes it only when nothing posted can
// touch it any more; a view used after that faults.
type Segment struct{ memory []byte }

// Map maps the first bytes of f, which must be sealed against shrinking: a
// mapping that its owner can cut ends the reader with SIGBUS.
func Map(f *os.File, bytes uint64) (*Segment, error) {
	if err := native.CheckSealed(f, bytes); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment: %s", err)
	}
	memory, err := native.Map(f, bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "segment: %s", err)
	}
	return &Segment{memory: memory}, nil
}

// Bytes is the segment's size.
func (s *Segment) Bytes() uint64 { return uint64(len(s.memory)) }

// Close unmaps the segment.
func (s *Segment) Close() error {
	memory := s.memory
	s.memory = nil
	return native.Unmap(memory)
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

// View is the memory of an extent of this segment; Go checks its bounds again.
func (s *Segment) View(e Extent) []byte {
	return s.memory[e.At : e.At+uint64(e.Length) : e.At+uint64(e.Length)]
}
