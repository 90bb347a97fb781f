package guarded

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
)

// A tenant's requests a second are counted over both gateways too: of a burst of two
// one is taken at each, and the next is refused at both.
func TestRequestsASecondAreOneCountOverAllGateways(t *testing.T) {
	g := shared(t)
	ctx, limited := withinOf(t, time.Minute), g.limited(t, "requests_per_second: 0.05, burst: 2")
	for _, name := range []string{"g1", "g2"} {
		if a := g.client(t, name).Send(ctx, g.ask(limited, "within its burst", 3)); a.Counted(3) != nil {
			t.Errorf("at %s: %s", name, chaos.Verdict(a))
		}
	}
	for _, name := range []string{"g1", "g2"} {
		a := g.client(t, name).Send(ctx, g.ask(limited, "beyond it", 3))
		if err := a.Typed(); err != nil || a.Status != http.StatusTooManyRequests || a.RetryAfter < time.Second || !strings.Contains(a.Failure.Message, "requests_per_second") {
			t.Errorf("at %s: %d after %s %s %v", name, a.Status, a.RetryAfter, chaos.Verdict(a), err)
		}
	}
}

// A tenant's tokens in flight are counted over both gateways: what goes beyond is
// refused with a type before any prefill, what still fits is served. A gateway is
// killed in the middle of a stream: what it had taken is given back.
func TestTokensInFlightAreOneCountOverAllGateways(t *testing.T) {
	g := shared(t)
	ctx, bounded := withinOf(t, 3*time.Minute), g.limited(t, "tokens_in_flight: 1000")

	over := g.client(t, "g1").Begin(ctx, g.ask(bounded, "most of it", 800), 1)
	more, m := g.ask(bounded, "too much", 250), g.Mark()
	for _, name := range []string{"g1", "g2"} {
		a := g.client(t, name).Send(ctx, more)
		if err := a.Typed(); err != nil || a.Status != http.StatusTooManyRequests || a.Failure.Code != "rate_limit_exceeded" || !strings.Contains(a.Failure.Message, "tokens_in_flight") {
			t.Errorf("beyond the limit, at %s: %d %s %v", name, a.Status, chaos.Verdict(a), err)
		}
	}
	if p := fault.Prefilled(g.Since(m)); len(p) > 0 {
		t.Errorf("refused, and computed: %v", p)
	}
	for _, name := range []string{"g1", "g2"} {
		if a := g.client(t, name).Send(ctx, g.ask(bounded, "this fits", 50)); a.Counted(50) != nil {
			t.Errorf("within the limit, at %s: %s", name, chaos.Verdict(a))
		}
	}
	if a := g.client(t, "g2").Send(ctx, g.ask(acme, "without a limit", 250)); a.Counted(250) != nil {
		t.Errorf("another tenant: %s", chaos.Verdict(a))
	}

	if err := g.Process("g1").Kill(); err != nil {
		t.Fatal(err)
	}
	if a := <-over; a.Broken == nil {
		t.Errorf("the stream of a gateway that was killed: %s", chaos.Verdict(a))
	}
	if a, _ := g.client(t, "g2").Insist(ctx, more, time.Minute, 200*time.Millisecond); a.Counted(250) != nil {
		t.Errorf("after its gateway died: %s", chaos.Verdict(a))
	}
	if err := g.Heal(ctx); err != nil {
		t.Error(err)
	}
}
