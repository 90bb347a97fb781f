package scenario

import (
	"errors"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/bare"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
)

// The processes that renew and read are paused past the lease, before and
// during the read. Whoever goes on afterwards commits nothing of that attempt;
// the client is answered by another or refused, and nothing is held.
func TestWhatItsLeaseLeftBehindIsNeverCommitted(t *testing.T) {
	for _, c := range []struct {
		name   string
		phase  fault.Phase
		prompt int
		paused []string
	}{
		{"before the read", fault.Prefill, shortPrompt, []string{"g1"}},
		{"during the read", fault.Transfer, longPrompt, []string{"g1", "p1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shared(t)
			s.lapse(t, c.phase, c.prompt, c.paused)
		})
	}
}

// lapse pauses processes in a phase until the struck attempt's lease has ended.
func (s *stage) lapse(t *testing.T, phase fault.Phase, prompt int, paused []string) {
	ctx := within(t, 2*requestWithin)
	struck, err := fault.Strike(ctx, s.Fleet, s.g1(), s.ask(prompt, 20), phase, func(at fleet.Event) error {
		m := s.Mark()
		var failed []error
		for _, name := range paused {
			failed = append(failed, s.Process(name).Pause())
		}
		_, lapsed := s.Await(ctx, m, func(e fleet.Event) bool { return e.Attempt == at.Attempt && e.Name == "expire" })
		failed = append(failed, lapsed)
		for _, name := range paused {
			failed = append(failed, s.Process(name).Resume())
		}
		return errors.Join(failed...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := struck.Typed(); err != nil {
		t.Error(err)
	}
	for _, a := range fault.Committed(s.Since(struck.Mark)) {
		if a == struck.Attempt {
			t.Errorf("%s was committed after its lease had ended", a)
		}
	}
	s.atRest(t)
	s.fine(t, s.g1())
	t.Logf("%s after %s", chaos.Verdict(struck.Answer), struck.Total.Round(time.Millisecond))
}

// What was read, verified and validated in time is not committed after its
// lease has ended either. The steps are called by hand: nobody renews.
func TestAValidatedReadIsNotCommittedAfterItsLease(t *testing.T) {
	s := shared(t)
	ctx := within(t, requestWithin)
	m := s.Mark()
	h, err := bare.Plan(ctx, s.Fleet, s.ask(shortPrompt, 5))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Reserve(ctx), h.Prefill(ctx, func() {})); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pull(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Await(ctx, m, func(e fleet.Event) bool { return e.Machine == "target" && e.Name == "expire" }); err != nil {
		t.Fatal(err)
	}
	if err := h.Commit(ctx); handoff.CodeOf(err) != handoff.CodeClosed {
		t.Errorf("the commit was answered with %v, want closed", err)
	}
	if c := fault.Committed(s.Since(m)); len(c) > 0 {
		t.Errorf("committed: %v", c)
	}
}
