package paged

import (
	"errors"
	"fmt"
)

// Sequence is one request's view of the arena: its block table and its slot. It
// is what the model reads and writes. It is for one goroutine.
type Sequence struct {
	arena  *Arena
	blocks []Block
	slot   Slot
	sealed int // leading blocks that may not be written any more
}

// Open starts a sequence on blocks that the caller holds and passes on: the
// shared ones of a prefix hit first. It takes a slot; on an error the caller
// still holds the blocks.
func (a *Arena) Open(shared, own []Block) (*Sequence, error) {
	slot, err := a.AcquireSlot()
	if err != nil {
		return nil, err
	}
	blocks := append(append(make([]Block, 0, len(shared)+len(own)), shared...), own...)
	return &Sequence{a, blocks, slot, len(shared)}, nil
}

// Close releases the blocks and the slot, once; a second call does nothing.
func (s *Sequence) Close() error {
	if s.arena == nil {
		return nil
	}
	a, blocks := s.arena, s.blocks
	s.arena, s.blocks = nil, nil // so that a use after Close finds nothing
	return errors.Join(a.Release(blocks), a.ReleaseSlot(s.slot))
}

// Grow makes room for tokens in all.
func (s *Sequence) Grow(tokens int) error {
	if s.arena == nil {
		return fmt.Errorf("%w: sequence is closed", ErrNotHeld)
	}
	n := s.arena.layout.BlocksFor(tokens) - len(s.blocks)
	if n <= 0 {
		return nil
	}
	more, err := s.arena.Allocate(n)
	if err != nil {
		return err
	}
	s.blocks = append(s.blocks, more...)
	return nil
}

// Seal makes the first n blocks read-only: they are announced or cached.
func (s *Sequence) Seal(n int) { s.sealed = max(s.sealed, min(n, len(s.blocks))) }

// Blocks is the block table, not to be changed.
func (s *Sequence) Blocks() []Block { return s.blocks }

// Slot is the sequence's slot.
func (s *Sequence) Slot() Slot { return s.slot }

// Run is a block's K and V in a layer, to read.
func (s *Sequence) Run(layer, block int) ([]byte, error) {
	if block < 0 || block >= len(s.blocks) || layer < 0 || layer >= s.arena.layout.Layers {
		return nil, fmt.Errorf("%w: no block at %d of the table, layer %d", ErrNotHeld, block, layer)
	}
	return s.arena.Bytes(s.arena.layout.Run(s.blocks[block], layer)), nil
}

// WritableRun is Run for a block that nobody else reads.
func (s *Sequence) WritableRun(layer, block int) ([]byte, error) {
	if block < s.sealed {
		return nil, fmt.Errorf("%w: %d of the table", ErrShared, block)
	}
	return s.Run(layer, block)
}

// Ring is the sliding-window item; nil once closed.
func (s *Sequence) Ring() []byte {
	if s.arena == nil {
		return nil
	}
	return s.arena.Bytes(s.arena.layout.Ring(s.slot))
}

// Items is the slot of the small state items; nil once closed.
func (s *Sequence) Items() []byte {
	if s.arena == nil {
		return nil
	}
	return s.arena.Bytes(s.arena.layout.Items(s.slot))
}
