package paged

import "fmt"

// Layout is where everything lies. It says nothing of what the bytes mean.
type Layout struct {
	BlockTokens int // tokens of one block
	Layers      int // runs of one block
	RunBytes    int // one run
	Blocks      int
	Slots       int // sequences at once
	RingBytes   int // one ring; 0: there is none
	ItemsBytes  int // one items slot
}

// Range is a stretch of the arena, in bytes.
type Range struct{ Offset, Bytes int }

// maxBytes bounds an arena: none of a reference engine is larger.
const maxBytes = 1 << 36

// Block and Slot are indices; a Slot has a ring and an items slot.
type (
	Block int32
	Slot  int32
)

// Check refuses a layout whose sizes are not positive, but for the ring's, or do
// not fit.
func (l Layout) Check() error {
	total := 1
	if l.RingBytes < 0 || l.RingBytes > maxBytes {
		return fmt.Errorf("%w: a ring of %d", ErrLayout, l.RingBytes)
	}
	for _, n := range []int{l.BlockTokens, l.Layers, l.RunBytes, l.Blocks, l.Slots, l.ItemsBytes} {
		if n <= 0 || n > maxBytes {
			return fmt.Errorf("%w: a size of %d", ErrLayout, n)
		}
	}
	for _, n := range []int{l.Layers, l.RunBytes, l.Blocks} {
		if total > maxBytes/n {
			return fmt.Errorf("%w: blocks too large", ErrLayout)
		}
		total *= n
	}
	if l.Slots > (maxBytes-total)/(l.RingBytes+l.ItemsBytes) {
		return fmt.Errorf("%w: slots too large", ErrLayout)
	}
	return nil
}

// Bytes is the size of the arena.
func (l Layout) Bytes() int { return l.Items(Slot(l.Slots)).Offset }

// Block is all runs of a block.
func (l Layout) Block(b Block) Range {
	n := l.Layers * l.RunBytes
	return Range{int(b) * n, n}
}

// Run is the K and V of a block in one layer.
func (l Layout) Run(b Block, layer int) Range {
	return Range{l.Block(b).Offset + layer*l.RunBytes, l.RunBytes}
}

// Ring is the sliding-window item of a slot.
func (l Layout) Ring(s Slot) Range {
	return Range{l.Block(Block(l.Blocks)).Offset + int(s)*l.RingBytes, l.RingBytes}
}

// Items is the small state items of a slot.
func (l Layout) Items(s Slot) Range {
	return Range{l.Ring(Slot(l.Slots)).Offset + int(s)*l.ItemsBytes, l.ItemsBytes}
}

// BlocksFor is the number of blocks that tokens need.
func (l Layout) BlocksFor(tokens int) int { return (tokens + l.BlockTokens - 1) / l.BlockTokens }
