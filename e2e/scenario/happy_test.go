package scenario

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// A client asks; the stream is whole, every prompt token came by the handoff,
// and the history alone tells what happened: the four steps, the engines, the
// first epoch and the bytes.
func TestAStreamIsWholeAndItsHistoryTellsTheHandoff(t *testing.T) {
	s := shared(t)
	for _, c := range []struct {
		name   string
		prompt int
	}{{"short, moved once it is sealed", shortPrompt}, {"long, moved while it is computed", longPrompt}} {
		t.Run(c.name, func(t *testing.T) {
			ctx := within(t, requestWithin)
			a := s.g1().Send(ctx, s.ask(c.prompt, 20))
			if err := a.Counted(20); err != nil {
				t.Fatal(err)
			}
			if tokens := c.prompt + 2; a.Usage.Prompt != tokens || a.Usage.Direct != tokens || a.Usage.Cached+a.Usage.Recomputed != 0 {
				t.Errorf("usage is %+v, want all %d prompt tokens direct", a.Usage, tokens)
			}
			out, err := s.Outcome(ctx, fleet.DefaultTenant, a.Handoff)
			if err != nil {
				t.Fatal(err)
			}
			if !out.Committed || out.Code != "" || out.Attempt.Epoch != 1 || out.Bytes == 0 || out.Prefill != "p1" || out.Decode != "d1" {
				t.Errorf("the outcome is %+v", out)
			}
			if got := int(out.Usage.Completion); got != 20 {
				t.Errorf("the history counts %d tokens of 20", got)
			}
			h, err := s.History(ctx, fleet.DefaultTenant, a.Handoff)
			if err != nil {
				t.Fatal(err)
			}
			if raw, err := proto.Marshal(h); err != nil || bytes.Contains(raw, []byte(traffic.Words(shortPrompt)[:20])) {
				t.Error("the history holds the prompt's text: ", err)
			}
			steps, err := fleet.Steps(h)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []handoff.Step{handoff.StepReserve, handoff.StepPrefill, handoff.StepTransfer, handoff.StepCommit} {
				if !slices.Contains(steps, string(want)) {
					t.Errorf("the history shows %v, without %s\n%s", steps, want, fleet.Tell(h))
				}
			}
			t.Logf("TTFT %s, %d events, steps %v, %d bytes", a.FirstToken, len(h.Events), steps, out.Bytes)
		})
	}
}

// The same by chat, and in one piece.
func TestEverySurfaceGivesTheSameAnswer(t *testing.T) {
	s := shared(t)
	a := s.ask(shortPrompt, 8)
	a.Whole = true
	whole := s.g2().Send(within(t, requestWithin), a)
	if err := whole.Counted(8); err != nil {
		t.Error("in one piece: ", err)
	}
	a.Whole, a.Chat = false, true
	if err := s.g2().Send(within(t, requestWithin), a).Counted(8); err != nil {
		t.Error("by chat: ", err)
	}
}
