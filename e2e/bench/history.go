package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

const (
	counted    = 20  // handoffs whose writes are counted
	longAnswer = 800 // tokens, a millisecond each or more: long enough to look between commit and end
	settled    = 100 * time.Millisecond
)

// History is what one handoff costs in histories. Writes are Temporal's own
// counters of its persistence calls that create or update a history.
type History struct {
	Events                float64
	WritesToCommit, ToEnd float64
}

// history counts over handoffs that all decode at once: the first look is when
// each has its first token, the second when nothing runs any more.
func (b *bench) history(ctx context.Context) (h History, err error) {
	before, err := b.f.HistoryWrites(ctx)
	if err != nil {
		return h, err
	}
	var decoding, over sync.WaitGroup
	answers := make([]traffic.Answer, counted)
	decoding.Add(counted)
	for i := range answers {
		ask := b.ask(i)
		ask.MaxTokens = longAnswer
		var first sync.Once
		ask.OnPiece = func(int) { first.Do(decoding.Done) }
		over.Go(func() {
			answers[i] = b.client.Send(ctx, ask)
			first.Do(decoding.Done) // also of a stream that never came
		})
	}
	decoding.Wait()
	atCommit, err := b.quiet(ctx)
	over.Wait()
	if err != nil {
		return h, err
	}
	for _, a := range answers {
		if err := a.Counted(longAnswer); err != nil {
			return h, err
		}
	}
	if err := b.f.AtRest(ctx, restWithin); err != nil {
		return h, err
	}
	atEnd, err := b.f.HistoryWrites(ctx)
	if err != nil {
		return h, err
	}
	h.WritesToCommit, h.ToEnd = float64(atCommit-before)/counted, float64(atEnd-before)/counted
	h.Events, err = b.events(ctx, answers)
	return h, err
}

// quiet reads the counter once it stands still: the first tokens run ahead of
// the write that records the commit.
func (b *bench) quiet(ctx context.Context) (int, error) {
	last := -1
	for range 5 {
		now, err := b.f.HistoryWrites(ctx)
		if err != nil {
			return 0, err
		}
		if now == last {
			return now, nil
		}
		last = now
		select {
		case <-time.After(settled):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, fmt.Errorf("history writes went on while nothing but decoding was going on")
}

func (b *bench) events(ctx context.Context, answers []traffic.Answer) (float64, error) {
	total := 0
	for _, a := range answers {
		h, err := b.f.History(ctx, fleet.DefaultTenant, a.Handoff)
		if err != nil {
			return 0, err
		}
		total += len(h.GetEvents())
	}
	return float64(total) / float64(len(answers)), nil
}
