package paged

import (
	"fmt"
	"sync"
)

// Options of an arena.
type Options struct {
	// Poison scrubs with 0xFF bytes, which read as NaN and as no token, instead of zeros. Free
	// memory is poisoned from the start.
	Poison bool
}

// Arena owns the books of one mapped memory. Its methods may be called from any
// goroutine; the bytes themselves belong to whoever holds the block or slot.
type Arena struct {
	layout Layout
	mem    []byte
	poison bool

	mu struct {
		sync.Mutex
		holders []int32 // of each block
		free    []Block
		slots   []bool // held
		prefix  prefixCache
	}
}

// New takes the memory, of exactly layout.Bytes(), and scrubs it.
func New(layout Layout, mem []byte, options Options) (*Arena, error) {
	if err := layout.Check(); err != nil {
		return nil, err
	}
	if need := layout.Bytes(); len(mem) != need {
		return nil, fmt.Errorf("%w: needs %d bytes, has %d", ErrLayout, need, len(mem))
	}
	a := &Arena{layout: layout, mem: mem, poison: options.Poison}
	a.mu.holders = make([]int32, layout.Blocks)
	a.mu.slots = make([]bool, layout.Slots)
	a.mu.prefix = newPrefixCache()
	for b := layout.Blocks - 1; b >= 0; b-- {
		a.mu.free = append(a.mu.free, Block(b))
	}
	a.scrub(Range{0, len(mem)})
	return a, nil
}

// Layout is the arena's.
func (a *Arena) Layout() Layout { return a.layout }

// Bytes is the memory of a range.
func (a *Arena) Bytes(r Range) []byte { return a.mem[r.Offset : r.Offset+r.Bytes : r.Offset+r.Bytes] }

func (a *Arena) scrub(r Range) {
	bytes := a.Bytes(r)
	if !a.poison {
		clear(bytes)
		return
	}
	for i := range bytes {
		bytes[i] = 0xFF
	}
}

// Count is the state of the books: Free + Held + Cached = Blocks.
type Count struct {
	Blocks, Free, Held, Cached int // Cached: kept for their prefix, held by nobody
	Slots, FreeSlots           int
}

// Count reads the books.
func (a *Arena) Count() Count {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := Count{Blocks: a.layout.Blocks, Free: len(a.mu.free), Cached: a.mu.prefix.idle.Len(), Slots: a.layout.Slots}
	for _, n := range a.mu.holders {
		if n > 0 {
			c.Held++
		}
	}
	for _, held := range a.mu.slots {
		if !held {
			c.FreeSlots++
		}
	}
	return c
}
