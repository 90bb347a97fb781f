package bench

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

const (
	counted = 5 // handoffs whose writes are counted, one at a time
	// reported is how long the server may take to tell a write: it publishes its
	// counters once a second.
	reported = 1200 * time.Millisecond
	// decoding is how long an answer takes: time to look between commit and end.
	decoding = 2 * reported
)

// History is what one handoff costs in histories. Writes are Temporal's own
// counters of its persistence calls that create or update a history.
type History struct {
	Events                float64
	WritesToCommit, ToEnd float64
}

// history counts one handoff after the other, so that nothing else is counted.
func (b *bench) history(ctx context.Context) (sum History, err error) {
	before, err := b.writes(ctx)
	for range counted {
		if err != nil {
			return sum, err
		}
		var atCommit, atEnd, events int
		if atCommit, atEnd, events, err = b.one(ctx); err != nil {
			return sum, err
		}
		sum.Events += float64(events) / counted
		sum.WritesToCommit += float64(atCommit-before) / counted
		sum.ToEnd += float64(atEnd-before) / counted
		before = atEnd
	}
	return sum, nil
}

// one looks when its handoff decodes, and again when nothing runs any more.
func (b *bench) one(ctx context.Context) (atCommit, atEnd, events int, err error) {
	ask := b.ask(0)
	ask.MaxTokens = int(decoding/max(b.Step, time.Millisecond)) + 1
	decodes := make(chan struct{})
	var first sync.Once
	begun := func() { first.Do(func() { close(decodes) }) }
	ask.OnPiece = func(int) { begun() }
	over := make(chan traffic.Answer, 1)
	go func() {
		a := b.client.Send(ctx, ask)
		begun() // also of a stream that never came
		over <- a
	}()
	<-decodes
	atCommit, err = b.writes(ctx)
	answer := <-over
	if err == nil {
		err = answer.Counted(ask.MaxTokens)
	}
	if err == nil {
		err = b.f.AtRest(ctx, restWithin)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	if atEnd, err = b.writes(ctx); err != nil {
		return 0, 0, 0, err
	}
	h, err := b.f.History(ctx, fleet.DefaultTenant, answer.Handoff)
	return atCommit, atEnd, len(h.GetEvents()), err
}

// writes reads the counter once it tells all that has happened until now.
func (b *bench) writes(ctx context.Context) (int, error) {
	select {
	case <-time.After(reported):
		return b.f.HistoryWrites(ctx)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
