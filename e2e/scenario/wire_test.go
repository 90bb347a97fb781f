//go:build e2e

package scenario

import (
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// A release changes the daemons' wire protocol. While half of the daemons speak
// the new one no request fails that may go anywhere; one that is told to go from
// one to the other is refused with a type, before its first token, and holds
// nothing.
func TestDaemonsOfTwoWireVersionsFailNoRequest(t *testing.T) {
	s := shared(t)
	other, err := fleet.OtherWire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ours := s.Process("tp1").Path()
	t.Cleanup(func() {
		for _, name := range []string{"tp1", "td1"} {
			s.Process(name).Use(ours)
			if err := s.Process(name).Stop(); err != nil { // started again by the stage
				t.Error(err)
			}
		}
	})
	roll(t, s, []string{"tp1", "td1"}, func(p *fleet.Process) { p.Use(other) })
	ctx := within(t, 4*requestWithin)
	for _, c := range []struct {
		p, d  string
		whole bool
	}{{"p1", "d1", true}, {"p2", "d2", true}, {"p1", "d2", false}, {"p2", "d1", false}} {
		ask := s.ask(longPrompt, 5)
		ask.Prefill, ask.Decode, ask.Deadline = c.p, c.d, 10*time.Second
		a := s.g1().Send(ctx, ask)
		if err := a.Typed(); err != nil || (a.Counted(5) == nil) != c.whole || a.Failure != nil && a.Pieces > 0 {
			t.Errorf("%s to %s: %s %v", c.p, c.d, chaos.Verdict(a), err)
		}
		t.Logf("%s to %s: %s", c.p, c.d, chaos.Verdict(a))
	}
	most := time.Duration(0)
	for range 20 {
		a := s.g2().Send(ctx, traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(longPrompt), MaxTokens: 5})
		if err := a.Counted(5); err != nil {
			t.Errorf("a request that may go anywhere: %s", err)
		}
		most = max(most, a.FirstToken)
	}
	t.Logf("first token after %s at most", most)
}
