// Package rail remembers which ways to a peer failed lately. A failed rail pauses,
// twice as long each time, while the others carry on; errors that would repeat
// (a bad range, a refusal) end a pull and never reach a rail.
package rail

import (
	"sync"
	"time"
)

const (
	pauseMin = 5 * time.Millisecond
	pauseMax = 5 * time.Second
	// maxPaused bounds the rails that are remembered; past it the one whose pause
	// ends first is forgotten.
	maxPaused = 4096
)

type paused struct {
	until time.Time
	pause time.Duration
}

// Book holds the rails of every peer, by address. The zero Book is ready.
type Book struct {
	mu  sync.Mutex
	bad map[string]paused
}

// Choose gives the first of rails, in their order of preference, that does not
// pause. When all of them do it gives the one that is back first, and in how long.
func (b *Book) Choose(now time.Time, rails []string) (address string, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range rails {
		left := b.bad[r].until.Sub(now)
		if left <= 0 {
			return r, 0
		}
		if i == 0 || left < wait {
			address, wait = r, left
		}
	}
	return address, wait
}

// Failed pauses a rail.
func (b *Book) Failed(now time.Time, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bad == nil {
		b.bad = map[string]paused{}
	}
	p, known := b.bad[address]
	if !known && len(b.bad) >= maxPaused {
		b.forget()
	}
	p.pause = min(max(2*p.pause, pauseMin), pauseMax)
	p.until = now.Add(p.pause)
	b.bad[address] = p
}

func (b *Book) forget() {
	first := ""
	for r, p := range b.bad {
		if first == "" || p.until.Before(b.bad[first].until) {
			first = r
		}
	}
	delete(b.bad, first)
}

// Worked says that a rail carried bytes.
func (b *Book) Worked(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.bad, address)
}
