package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// OneOwner is an error if an older attempt of a handoff became visible after a
// newer one, or one twice. Two in their order are no violation: the reader gave
// the earlier one up before it told a token.
func OneOwner(events []fleet.Event) error {
	owner := map[string]handoff.Attempt{}
	for _, a := range fault.Committed(events) {
		id := fault.PublicID(a)
		if other, ok := owner[id]; ok && other.Epoch >= a.Epoch {
			return fmt.Errorf("%s became visible after %s", a, other)
		}
		owner[id] = a
	}
	return nil
}

// Sticks asks once more, at rest: a key whose handoff was committed is never
// answered anew (S13). What is over without a stream may only be refused. Where
// the store lost its claims a head start may compute in vain; it is undone.
func (s *Stage) Sticks(ctx context.Context, ask traffic.Ask, since fleet.Mark) error {
	ctx, cancel := context.WithTimeout(ctx, RequestWithin)
	defer cancel()
	committed := fault.Committed(s.Since(since))
	m := s.Mark()
	if err := s.Clients["g2"].Send(ctx, ask).Typed(); err != nil {
		return fmt.Errorf("the same key at rest: %w", err)
	}
	if c := fault.Committed(s.Since(m)); len(committed) > 0 && len(c) > 0 {
		return fmt.Errorf("the same key at rest was answered anew: %v after %v", c, committed)
	}
	return s.AtRest(ctx, RestWithin)
}

// Fine is nil once a fresh request is answered whole, soon (L3).
func (s *Stage) Fine(ctx context.Context, c *traffic.Client) error {
	const tokens = 5
	a := s.Ask(ShortPrompt, tokens)
	a.Prefill, a.Decode = "", ""
	ctx, cancel := context.WithTimeout(ctx, GoodAgain)
	defer cancel()
	for {
		answer := c.Send(ctx, a)
		err := answer.Counted(tokens)
		if err == nil {
			return nil
		}
		if typed := answer.Typed(); typed != nil && ctx.Err() == nil {
			return fmt.Errorf("a fresh request: %w", typed)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no fresh request is answered within %s: %w", GoodAgain, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
