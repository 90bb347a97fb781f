package scenario

import (
	"context"
	"testing"

	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
)

// The client leaves, in each phase. P, D and both daemons let go of what they
// held for it at once; the history ends too.
func TestAClientThatLeavesFreesEverythingAtOnce(t *testing.T) {
	for _, phase := range []fault.Phase{fault.Reserve, fault.Prefill, fault.Transfer, fault.Validated, fault.Commit, fault.Decode} {
		t.Run(phase.Name, func(t *testing.T) {
			s := shared(t)
			ctx, leave := context.WithCancel(within(t, requestWithin))
			var freed error
			_, err := fault.Strike(ctx, s.Fleet, s.g1(), s.ask(longPrompt, answerLong), phase, func(fleet.Event) error {
				leave()
				freed = s.MemoryFree(t.Context(), promptly)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if freed != nil {
				t.Error(freed)
			}
			s.atRest(t)
		})
	}
}
