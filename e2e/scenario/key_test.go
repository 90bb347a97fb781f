package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
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

// A key stands for its first request as long as its window, whatever Temporal
// retains: within it the answer is the same and another body is refused, though
// the history is gone; after it the key is a new handoff's, though the history is
// there. When the window is over is the store's word, and nobody's clock here.
func TestAKeyStandsForItsWindowAndNoLonger(t *testing.T) {
	if !patient {
		t.Skip("a fleet of its own: with -tags e2e")
	}
	o := chaos.Options()
	o.GatewayArgs = append(o.GatewayArgs, "--key-window", "45s")
	s := open(t, o)
	ctx := within(t, 6*requestWithin)
	cases := []*windowed{{name: "the history is retained"}, {name: "the history is gone", forget: true}, {name: "another body comes after it", body: " and more"}}
	for _, c := range cases {
		c.begin(ctx, t, s)
	}
	for _, c := range cases {
		if !c.stays(ctx, t, s) {
			t.Skip("a window was over before everybody had answered: this machine is too busy")
		}
	}
	for _, c := range cases {
		c.ends(ctx, t, s)
	}
	s.atRest(t)
}

// windowed is one key and what becomes of it.
type windowed struct {
	name   string
	forget bool   // its history, within the window
	body   string // more of it, after the window

	ask   traffic.Ask
	first traffic.Answer
	claim string // the store's own name of the key
	run   string // that it is claimed for
}

func (c *windowed) begin(ctx context.Context, t *testing.T, s *stage) {
	t.Helper()
	c.ask = s.ask(shortPrompt, 20)
	c.ask.Key, c.ask.Prefill, c.ask.Decode = fmt.Sprintf("window-%d", time.Now().UnixNano()), "", ""
	c.first = s.g1().Send(ctx, c.ask)
	if err := c.first.Counted(20); err != nil {
		t.Fatalf("%s: %s", c.name, err)
	}
	for { // from its outcome on the window counts
		var state string
		if c.claim, c.run, state = s.claimOf(ctx, t, c.first.Handoff); state == "settled" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if c.forget {
		if err := s.Forget(ctx, fleet.DefaultTenant, c.first.Handoff); err != nil {
			t.Fatal(err)
		}
	}
}

// stands says that the key is still the first request's.
func (c *windowed) stands(ctx context.Context, t *testing.T, s *stage) bool {
	t.Helper()
	_, run, _ := s.claimOf(ctx, t, c.first.Handoff)
	return run == c.run
}

// stays asks within the window; it is false when that was over meanwhile.
func (c *windowed) stays(ctx context.Context, t *testing.T, s *stage) bool {
	t.Helper()
	other := c.ask
	other.Prompt += " and more"
	m := s.Mark()
	for name, client := range s.Clients {
		again, refused := client.Send(ctx, c.ask), client.Send(ctx, other)
		if !c.stands(ctx, t, s) {
			return false
		}
		if err := again.Counted(20); err != nil || again.Text != c.first.Text || again.Handoff != c.first.Handoff || !again.Joined {
			t.Errorf("%s: within the window, at %s: %v %s", c.name, name, err, chaos.Verdict(again))
		}
		if err := refused.Typed(); err != nil || refused.Status != 409 || refused.Failure.Code != "key_reused" {
			t.Errorf("%s: another body within the window, at %s: %d %s %v", c.name, name, refused.Status, chaos.Verdict(refused), err)
		}
	}
	if p := fault.Prefilled(s.Since(m)); len(p) > 0 {
		t.Errorf("%s: within the window it was computed again: %v", c.name, p)
	}
	return true
}

// ends waits for the end of the window, and asks again.
func (c *windowed) ends(ctx context.Context, t *testing.T, s *stage) {
	t.Helper()
	for c.stands(ctx, t, s) {
		if ctx.Err() != nil {
			t.Fatalf("%s: the window has no end", c.name)
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.ask.Prompt += c.body
	for m := s.Mark(); ; time.Sleep(200 * time.Millisecond) { // the clocks of the store, of Temporal and of the gateways are each their own
		later := s.g2().Send(ctx, c.ask)
		p := fault.Prefilled(s.Since(m))
		if len(p) == 1 && later.Counted(20) == nil && !later.Joined {
			return
		}
		if ctx.Err() != nil || len(p) > 1 {
			t.Fatalf("%s: after the window: %s; computed %v", c.name, chaos.Verdict(later), p)
		}
	}
}

// An operator resets a run whose second epoch delivers: the new run begins with
// the plan of the first one, of which everybody proves that it was never
// committed. Its key is spent all the same (S13).
func TestAResetFreesNoKeyWhoseClientHasTokens(t *testing.T) {
	if !patient {
		t.Skip("with -tags e2e")
	}
	s := shared(t)
	ctx := within(t, 3*requestWithin)
	ask := s.ask(longPrompt, 10*answerLong)
	ask.Key = fmt.Sprintf("reset-%d", time.Now().UnixNano())
	m, killed := s.Mark(), make(chan error, 1)
	go func() {
		_, err := s.Await(ctx, m, func(e fleet.Event) bool { return e.Became("source", "opened") })
		if err == nil {
			err = s.Process("p1").Kill()
		}
		killed <- err
	}()
	over := s.g1().Begin(ctx, ask, 3)
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	committed := fault.Committed(s.Since(m))
	if len(committed) != 1 || committed[0].Epoch < 2 {
		t.Fatalf("delivered by %v, not by a later epoch", committed)
	}
	id := fault.PublicID(committed[0])
	if err := s.Reset(ctx, fleet.DefaultTenant, id); err != nil {
		t.Fatal(err)
	}
	out, err := s.Outcome(ctx, fleet.DefaultTenant, id)
	if err != nil || out.Code != "reset" || out.Committed || out.Attempt.Epoch != 1 {
		t.Errorf("the reset run ends as %+v, %v", out, err)
	}
	s.spent(ctx, t, ask, over)
}

// An operator terminates a run whose client has tokens: what that came to nobody can
// say, so its key is spent (rule 13).
func TestATerminatedRunFreesNoKeyWhoseClientHasTokens(t *testing.T) {
	if !patient {
		t.Skip("with -tags e2e")
	}
	s := shared(t)
	ctx := within(t, 3*requestWithin)
	ask := s.ask(longPrompt, 10*answerLong)
	ask.Key = fmt.Sprintf("terminated-%d", time.Now().UnixNano())
	m := s.Mark()
	over := s.g1().Begin(ctx, ask, 3)
	committed := fault.Committed(s.Since(m))
	if len(committed) != 1 {
		t.Fatalf("delivered by %v", committed)
	}
	if err := s.Terminate(ctx, fleet.DefaultTenant, fault.PublicID(committed[0])); err != nil {
		t.Fatal(err)
	}
	s.spent(ctx, t, ask, over)
}

// A refusal before the commit frees its key, whether or not the store remembers it:
// the run in history is followed by another of the same handoff.
func TestARefusedKeyIsServedWhenItIsAskedAgain(t *testing.T) {
	s := shared(t)
	ctx := within(t, 2*requestWithin)
	for name, forget := range map[string]bool{"the store remembers": false, "the store forgot": true} {
		ask := s.ask(longPrompt, 20)
		ask.Key = fmt.Sprintf("refused-%d", time.Now().UnixNano())
		late := ask
		late.Deadline = 50 * time.Millisecond // shorter than P's 300 ms
		first := s.g1().Send(ctx, late)
		if err := first.Typed(); err != nil || first.Failure == nil || first.Failure.Code != "deadline" {
			t.Fatalf("%s: %s %v", name, chaos.Verdict(first), err)
		}
		if out, err := s.Outcome(ctx, fleet.DefaultTenant, first.Handoff); err != nil || out.Committed {
			t.Fatalf("%s: it ended as %+v, %v", name, out, err)
		}
		if forget {
			if err := s.Empty(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.Serves(ctx); err != nil {
				t.Fatal(err)
			}
		}
		again, _ := s.g2().Insist(ctx, ask, requestWithin, 50*time.Millisecond)
		if err := again.Counted(20); err != nil || again.Handoff != first.Handoff {
			t.Errorf("%s: asked again: %s of %s, not %s: %v", name, chaos.Verdict(again), again.Handoff, first.Handoff, err)
		}
	}
}

// spent kills the gateway that holds the stream of a key, and says that the key is
// nobody's any more, though its client has tokens: by the store's word, and by the
// history's where the store forgot it.
func (s *stage) spent(ctx context.Context, t *testing.T, ask traffic.Ask, over <-chan traffic.Answer) {
	t.Helper()
	if err := s.Process("g1").Kill(); err != nil {
		t.Fatal(err)
	}
	if a := <-over; a.Pieces < 3 {
		t.Errorf("the client has %d pieces", a.Pieces)
	}
	if err := s.Heal(ctx); err != nil {
		t.Fatal(err)
	}
	for name, c := range s.Clients {
		m := s.Mark()
		a := c.Send(ctx, ask)
		if err := a.Typed(); err != nil || a.Failure == nil || a.Failure.Code != "gone" {
			t.Errorf("the same key, at %s: %s %v", name, chaos.Verdict(a), err)
		}
		if p := fault.Prefilled(s.Since(m)); len(p) > 0 {
			t.Errorf("the same key, at %s, was computed: %v", name, p)
		}
	}
	if err := s.Empty(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Serves(ctx); err != nil {
		t.Fatal(err)
	}
	for name, c := range s.Clients {
		m := s.Mark()
		if a := c.Send(ctx, ask); a.Failure == nil || a.Failure.Code != "gone" || len(fault.Committed(s.Since(m))) > 0 {
			t.Errorf("the same key, when the store forgot it, at %s: %s", name, chaos.Verdict(a))
		}
	}
}

// claimOf is what the store holds of the key of a handoff: its own name of it, for
// which run it is claimed, and how that stands; empty: nothing.
func (s *stage) claimOf(ctx context.Context, t *testing.T, id string) (key, run, state string) {
	t.Helper()
	o, err := redis.ParseURL(s.RedisURL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	defer c.Close()
	keys, err := c.Keys(ctx, "surehand:{claim:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		got, err := c.HMGet(ctx, key, "handoff", "state").Result()
		if err != nil {
			t.Fatal(err)
		}
		run, _ := got[0].(string)
		if state, _ := got[1].(string); strings.HasPrefix(run, id+".") {
			return key, run, state
		}
	}
	return "", "", ""
}
