package refengine

import (
	"context"
	"sync"

	"github.com/surehand/surehand/transferd/client"
)

// announcer tells transferd which pieces of a source are written, with the
// digest that D will check. The device only notes them: a daemon that is slow to
// take a frame must not hold up other requests.
type announcer struct {
	e    *Engine
	s    *source
	news chan struct{}

	mu    sync.Mutex
	noted []stretch
	told  bool // wrote was called
}

// stretch is blocks first..last-1 of one layer.
type stretch struct{ layer, first, last int }

func newAnnouncer(e *Engine, s *source) *announcer {
	return &announcer{e: e, s: s, news: make(chan struct{}, 1)}
}

// wrote is called by the device.
func (a *announcer) wrote(layer, first, last int) {
	if first == last {
		return
	}
	a.mu.Lock()
	a.noted, a.told = append(a.noted, stretch{layer, first, last}), true
	a.mu.Unlock()
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// flush announces what was noted, one frame a (layer, chunk).
func (a *announcer) flush(ctx context.Context) error {
	a.mu.Lock()
	noted := a.noted
	a.noted = nil
	a.mu.Unlock()
	for _, n := range noted {
		if err := a.stretch(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// blocks announces the first n blocks in every layer: a prefix hit.
func (a *announcer) blocks(ctx context.Context, n int) error {
	return a.stretches(ctx, 0, n)
}

// stretches announces blocks first..last-1 in every layer.
func (a *announcer) stretches(ctx context.Context, first, last int) error {
	for layer := 0; first < last && layer < a.e.form.layout.Layers; layer++ {
		if err := a.stretch(ctx, stretch{layer, first, last}); err != nil {
			return err
		}
	}
	return nil
}

func (a *announcer) stretch(ctx context.Context, n stretch) error {
	base := a.s.shape.Piece(group, uint32(n.layer), 0)
	return a.pieces(ctx, base+uint32(n.first), base+uint32(n.last))
}

// whole announces every block that has not been: all of a state that is written
// at once, and none of another.
func (a *announcer) whole(ctx context.Context, blocks int) error {
	if a.told {
		return nil
	}
	return a.blocks(ctx, blocks)
}

// items announces the ring and the small items: the last that is written.
func (a *announcer) items(ctx context.Context) error {
	return a.pieces(ctx, a.s.shape.ItemPiece(0), a.s.shape.Pieces())
}

func (a *announcer) pieces(ctx context.Context, first, last uint32) error {
	pieces, digests := make([]uint32, 0, last-first), make([]uint32, 0, last-first)
	for p := first; p < last; p++ {
		pieces = append(pieces, p)
		digests = append(digests, client.Checksum(a.e.arena.Bytes(a.s.ranges[p])))
	}
	return a.e.daemon.Announce(ctx, a.s.plan.Attempt, pieces, digests)
}
