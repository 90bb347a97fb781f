package scenario

import (
	"errors"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
)

// The processes that renew and read are paused past the lease, before, during
// and after the read. Whoever goes on afterwards commits nothing of that
// attempt; the client is answered by another or refused, and nothing is held.
func TestWhatItsLeaseLeftBehindIsNeverCommitted(t *testing.T) {
	for _, c := range []struct {
		name   string
		phase  fault.Phase
		prompt int
		paused []string
	}{
		{"before the read", fault.Prefill, shortPrompt, []string{"g1"}},
		{"during the read", fault.Transfer, longPrompt, []string{"g1", "p1"}},
		{"after the read", fault.Validated, longPrompt, []string{"g1", "temporal"}},
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
	committedBefore := false
	struck, err := fault.Strike(ctx, s.Fleet, s.g1(), s.ask(prompt, 20), phase, func() error {
		m := s.Mark()
		var failed []error
		for _, name := range paused {
			failed = append(failed, s.Process(name).Pause())
		}
		// The commit may have been on its way already when the pause came.
		_, lapsed := s.Await(ctx, m, func(e fleet.Event) bool {
			committedBefore = committedBefore || e.Became("target", handoff.TargetCommitted.String())
			return committedBefore || e.Machine == "target" && e.Name == handoff.TargetExpire.String() && e.Code == handoff.CodeNone.String()
		})
		failed = append(failed, lapsed)
		for _, name := range paused {
			failed = append(failed, s.Process(name).Resume())
		}
		return errors.Join(failed...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if committedBefore {
		t.Skip("the commit was faster than the pause: nothing to see in this run")
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
	t.Logf("%s after %s", verdict(struck.Answer), struck.Total.Round(time.Millisecond))
}
