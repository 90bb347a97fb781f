package scenario

import (
	"errors"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/bare"
	"github.com/surehand/surehand/e2e/fault"
)

// P and its daemon die and come back on the same ports. A grant of before reads
// nothing: its incarnation is another life. The next request is fine.
func TestAGrantOfBeforeARestartReadsNothing(t *testing.T) {
	s := shared(t)
	ctx := within(t, 2*requestWithin)
	before := s.Mark()
	h, err := bare.Plan(ctx, s.Fleet, s.ask(shortPrompt, 5))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Reserve(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Prefill(ctx, func() {}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Process("p1").Kill(), s.Process("tp1").Kill()); err != nil {
		t.Fatal(err)
	}
	if err := s.Heal(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = h.Pull(ctx)
	if err == nil {
		t.Fatal("the old grant was honoured by another life of P")
	}
	if code := handoff.CodeOf(err); code == handoff.CodeInternal {
		t.Errorf("refused as %s", err)
	}
	t.Logf("refused: %s", err)
	if err := h.Commit(ctx); err == nil {
		t.Error("what was never read was committed")
	}
	if c := fault.Committed(s.Since(before)); len(c) > 0 {
		t.Errorf("committed: %v", c)
	}
	if err := s.g1().Send(ctx, s.ask(shortPrompt, 5)).Counted(5); err != nil {
		t.Errorf("the next request: %s", err)
	}
}
