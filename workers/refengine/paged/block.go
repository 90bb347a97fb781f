package paged

import (
	"fmt"
	"slices"
)

// Allocate gives n scrubbed blocks, each with one holder, all or none. It evicts
// cached prefixes, the least recently used first, when free blocks run out.
func (a *Arena) Allocate(n int) ([]Block, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n < 0 || n > len(a.mu.free)+a.mu.prefix.idle.Len() {
		return nil, fmt.Errorf("%w: %d blocks asked", ErrFull, n)
	}
	for len(a.mu.free) < n {
		a.reclaim(a.mu.prefix.evict())
	}
	first := len(a.mu.free) - n
	out := make([]Block, n)
	for i := range out { // the top of the stack first
		out[i] = a.mu.free[len(a.mu.free)-1-i]
		a.mu.holders[out[i]] = 1
	}
	a.mu.free = a.mu.free[:first]
	return out, nil
}

// Retain adds a holder to each block: a grant, or a second sequence.
func (a *Arena) Retain(blocks []Block) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.held(blocks); err != nil {
		return err
	}
	for _, b := range blocks {
		a.mu.holders[b]++
	}
	return nil
}

// Release drops one holder of each block. It checks them all before it changes
// any, but it is not idempotent: the caller drops each of its holds once.
func (a *Arena) Release(blocks []Block) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.held(blocks); err != nil {
		return err
	}
	for _, b := range slices.Backward(blocks) { // a prefix's tail rests first, so it goes first
		if a.mu.holders[b]--; a.mu.holders[b] > 0 {
			continue
		}
		if !a.mu.prefix.rest(b) {
			a.reclaim(b)
		}
	}
	return nil
}

// held refuses blocks with fewer holders than times they are named.
func (a *Arena) held(blocks []Block) error {
	named := make(map[Block]int32, len(blocks))
	for _, b := range blocks {
		if b < 0 || int(b) >= len(a.mu.holders) {
			return fmt.Errorf("%w: no block %d", ErrNotHeld, b)
		}
		if named[b]++; a.mu.holders[b] < named[b] {
			return fmt.Errorf("%w: block %d", ErrNotHeld, b)
		}
	}
	return nil
}

// reclaim scrubs a block that nobody holds and puts it on the free list.
func (a *Arena) reclaim(b Block) {
	a.scrub(a.layout.Block(b))
	a.mu.free = append(a.mu.free, b)
}

// AcquireSlot gives a scrubbed ring and items slot.
func (a *Arena) AcquireSlot() (Slot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s, held := range a.mu.slots {
		if !held {
			a.mu.slots[s] = true
			return Slot(s), nil
		}
	}
	return 0, fmt.Errorf("%w: no slot", ErrFull)
}

// ReleaseSlot scrubs and frees it. Like Release, once for each hold.
func (a *Arena) ReleaseSlot(s Slot) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s < 0 || int(s) >= len(a.mu.slots) || !a.mu.slots[s] {
		return fmt.Errorf("%w: slot %d", ErrNotHeld, s)
	}
	a.scrub(a.layout.Ring(s))
	a.scrub(a.layout.Items(s))
	a.mu.slots[s] = false
	return nil
}
