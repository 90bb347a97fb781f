package bench

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

const (
	counted    = 10  // handoffs whose writes are counted, one at a time
	longAnswer = 100 // tokens: long enough to look between commit and end
	settled    = 250 * time.Millisecond
)

// History is what one handoff costs in histories. Writes are Temporal's own
// counters of its persistence calls that create or update a history.
type History struct {
	Events                float64
	WritesToCommit, ToEnd float64
}

// history counts one handoff after the other, so that nothing else is counted.
func (b *bench) history(ctx context.Context) (sum History, err error) {
	for range counted {
		h, err := b.one(ctx)
		if err != nil {
			return sum, err
		}
		sum.Events += h.Events / counted
		sum.WritesToCommit += h.WritesToCommit / counted
		sum.ToEnd += h.ToEnd / counted
	}
	return sum, nil
}

// one looks when its handoff decodes, and again when nothing runs any more.
func (b *bench) one(ctx context.Context) (h History, err error) {
	before, err := b.quiet(ctx)
	if err != nil {
		return h, err
	}
	ask := b.ask(0)
	ask.MaxTokens = longAnswer
	decoding := make(chan struct{})
	var first sync.Once
	begun := func() { first.Do(func() { close(decoding) }) }
	ask.OnPiece = func(int) { begun() }
	over := make(chan traffic.Answer, 1)
	go func() {
		a := b.client.Send(ctx, ask)
		begun() // also of a stream that never came
		over <- a
	}()
	<-decoding
	atCommit, err := b.quiet(ctx)
	answer := <-over
	if err != nil {
		return h, err
	}
	if err := answer.Counted(longAnswer); err != nil {
		return h, err
	}
	if err := b.f.AtRest(ctx, restWithin); err != nil {
		return h, err
	}
	atEnd, err := b.quiet(ctx)
	if err != nil {
		return h, err
	}
	events, err := b.f.History(ctx, fleet.DefaultTenant, answer.Handoff)
	return History{float64(len(events.GetEvents())), float64(atCommit - before), float64(atEnd - before)}, err
}

// quiet reads the counter once it stands still: tokens run ahead of the write
// that records their commit.
func (b *bench) quiet(ctx context.Context) (int, error) {
	for last := -1; ; {
		now, err := b.f.HistoryWrites(ctx)
		if err != nil || now == last {
			return now, err
		}
		last = now
		select {
		case <-time.After(settled):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
