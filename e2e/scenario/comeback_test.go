package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// A gateway dies in the middle of a journalled stream. Its client goes on at the
// other one exactly where it stopped, by Last-Event-ID; who asks with the key
// hears it all from the start; and later, when the history and both gateways'
// memories are gone, the journal still tells it.
func TestAClientGoesOnWhereItStoppedWhoeverDied(t *testing.T) {
	s := shared(t)
	ctx := within(t, 2*requestWithin)
	ask := s.ask(longPrompt, answerLong)
	ask.Key, ask.Journal = fmt.Sprintf("comeback-%d", time.Now().UnixNano()), true
	const before = 10
	ask.OnPiece = func(pieces int) {
		if pieces == before {
			if err := s.Process("g1").Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	cut := s.g1().Send(ctx, ask)
	ask.OnPiece, ask.Prefill, ask.Decode = nil, "", ""
	if cut.Broken == nil || cut.Pieces < before || cut.LastID == "" {
		t.Fatalf("the first stream is %+v", cut)
	}
	rest := s.g2().Attach(ctx, cut.Handoff, cut.LastID)
	if err := rest.Whole(); err != nil {
		t.Fatal("the rest: ", err)
	}
	byGRPC := func(when, gateway string) {
		epoch, from, _ := strings.Cut(cut.LastID, "-")
		if got := (console{s, gateway}).run(t, ctx, "attach", cut.Handoff, "--from", from, "--epoch", epoch, "--quiet"); strings.TrimSpace(got) != strings.TrimSpace(rest.Text) {
			t.Errorf("by gRPC, %s: %q, want %q", when, got, rest.Text)
		}
	}
	byGRPC("at who reads it", "g2")
	whole := s.g2().Send(ctx, ask)
	if err := whole.Counted(answerLong); err != nil {
		t.Fatal("by its key: ", err)
	}
	if cut.Text+rest.Text != whole.Text {
		t.Errorf("%q and %q are not %q", cut.Text, rest.Text, whole.Text)
	}
	t.Logf("%d pieces, cut at %s, then %d more; the reader is the other gateway", cut.Pieces, cut.LastID, rest.Pieces)

	// Nobody remembers any more but the journal.
	if err := s.Forget(ctx, fleet.DefaultTenant, cut.Handoff); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"g1", "g2"} {
		if err := s.Process(name).Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Serves(ctx); err != nil {
		t.Fatal(err)
	}
	m := s.Mark()
	for name, a := range map[string]traffic.Answer{
		"by its id": s.g1().Attach(ctx, cut.Handoff, ""), "by its key": s.g2().Send(ctx, ask), "from the middle": s.g2().Attach(ctx, cut.Handoff, cut.LastID)} {
		want := whole.Text
		if name == "from the middle" {
			want = rest.Text
		}
		if err := a.Whole(); err != nil || a.Text != want {
			t.Errorf("%s, after everything: %v %q", name, err, a.Text)
		}
	}
	byGRPC("after everything", "g1")
	other := ask
	other.Prompt += "and more"
	if a := s.g1().Send(ctx, other); a.Status != 409 {
		t.Errorf("another body under the key: %s", chaos.Verdict(a))
	}
	if p := fault.Prefilled(s.Since(m)); len(p) > 0 {
		t.Errorf("what was kept was computed again: %v", p)
	}
}

// The client breaks off and comes back to the same gateway, and to the other one.
func TestABrokenConnectionCostsNothing(t *testing.T) {
	s := shared(t)
	ctx := within(t, requestWithin)
	ask := s.ask(shortPrompt, answerLong)
	ask.Journal = true
	text, id, handoff := "", "", ""
	for i, c := range []*traffic.Client{s.g1(), s.g2(), s.g1(), s.g2()} {
		leaving, leave := context.WithCancel(ctx)
		on := func(pieces int) {
			if pieces == 8 {
				leave()
			}
		}
		var a traffic.Answer
		switch i {
		case 0:
			ask.OnPiece = on
			a = c.Send(leaving, ask)
			handoff = a.Handoff
		case 3:
			a = c.Attach(ctx, handoff, id)
		default:
			a = c.AttachWhile(leaving, handoff, id, on)
		}
		leave()
		text, id = text+a.Text, a.LastID
	}
	if err := (traffic.Answer{Text: text}).Is(answerLong); err != nil {
		t.Fatal(err)
	}
	out, err := s.Outcome(ctx, fleet.DefaultTenant, handoff)
	if err != nil || out.Code != "" || out.Attempt.Epoch != 1 {
		t.Errorf("%+v %v", out, err)
	}
}

// A background response outlives the gateway that took it, for as long as
// somebody asks for it within D's lease.
func TestABackgroundResponseOutlivesItsGateway(t *testing.T) {
	s := shared(t)
	ctx := within(t, requestWithin)
	created := s.g1().Background(ctx, s.Options.ModelName(), traffic.Words(shortPrompt), answerLong)
	if created.Status != "in_progress" || !strings.HasPrefix(created.ID, "resp_") {
		t.Fatalf("%+v", created)
	}
	for {
		b := s.g1().Response(ctx, created.ID)
		if b.Text != "" {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("no token within the time")
		}
	}
	if err := s.Process("g1").Kill(); err != nil {
		t.Fatal(err)
	}
	var last traffic.Response
	for last.Status != "completed" && last.Status != "incomplete" {
		if last = s.g2().Response(ctx, created.ID); last.Failed != "" || ctx.Err() != nil {
			t.Fatalf("%+v", last)
		}
	}
	if err := (traffic.Answer{Text: last.Text}).Is(answerLong); err != nil {
		t.Fatal(err)
	}
	gone := s.g2().Background(ctx, s.Options.ModelName(), traffic.Words(longPrompt), 2000)
	if got := s.g2().CancelResponse(ctx, gone.ID); got.Status != "cancelled" {
		t.Errorf("cancelled: %+v", got)
	}
	s.atRest(t)
}
