package scenario

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/traffic"
)

// One key, a hundred times at once, through two gateways: one prefill, one
// commit, a hundred equal streams. Another body under the key is refused.
func TestAKeyIsServedOnceHoweverOftenItIsAsked(t *testing.T) {
	s := shared(t)
	const asks = 100
	ask := s.ask(shortPrompt, 20)
	ask.Key = "once-" + time.Now().Format(time.RFC3339Nano)
	ask.Prefill, ask.Decode = "", ""
	m := s.Mark()
	answers := traffic.Closed(within(t, requestWithin), asks, asks, func(ctx context.Context, _, i int) traffic.Answer {
		if i%2 == 0 {
			return s.g1().Send(ctx, ask)
		}
		return s.g2().Send(ctx, ask)
	})
	joined := 0
	for i, a := range answers {
		if err := a.Counted(20); err != nil {
			t.Errorf("stream %d: %s", i, err)
		}
		if a.Text != answers[0].Text || a.Handoff != answers[0].Handoff {
			t.Errorf("stream %d is another: %s %q", i, a.Handoff, a.Text)
		}
		if a.Joined {
			joined++
		}
	}
	if least := asks - 1; joined < least { // all but the first of all
		t.Errorf("%d of %d asks were told that they joined, want at least %d", joined, asks, least)
	}
	events := s.Since(m)
	if p, c := fault.Prefilled(events), fault.Committed(events); len(p) != 1 || len(c) != 1 {
		t.Errorf("%d prefills %v and %d commits %v, want one of each", len(p), p, len(c), c)
	}

	other := ask
	other.Prompt += "and more"
	for name, c := range s.Clients {
		m := s.Mark()
		a := c.Send(within(t, requestWithin), other)
		if err := a.Typed(); err != nil || a.Status != 409 || a.Failure.Code != "key_reused" {
			t.Errorf("another body under the key, through %s: %s (%d)", name, chaos.Verdict(a), a.Status)
		}
		if p := fault.Prefilled(s.Since(m)); len(p) > 0 {
			t.Errorf("another body under the key was computed: %v", p)
		}
	}
}
