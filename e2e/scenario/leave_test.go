package scenario

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
)

// The client leaves, in each phase. P, D and both daemons let go of what they
// held for it by the word, not by the end of a lease, nor of the answer, which is
// longer than anybody waits here; the history ends too.
func TestAClientThatLeavesFreesEverythingAtOnce(t *testing.T) {
	for _, phase := range []fault.Phase{fault.Reserve, fault.Prefill, fault.Transfer, fault.Validated, fault.Commit, fault.Decode} {
		t.Run(phase.Name, func(t *testing.T) {
			s := shared(t)
			ctx, leave := context.WithCancel(within(t, requestWithin))
			var freed error
			struck, err := fault.Strike(ctx, s.Fleet, s.g1(), s.ask(longPrompt, int(2*restWithin/step)), phase, func(fleet.Event) error {
				left := time.Now()
				leave()
				freed = s.MemoryFree(t.Context(), restWithin)
				t.Logf("everything is free after %s", time.Since(left).Round(10*time.Millisecond)) // L2: a second
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if freed != nil {
				t.Error(freed)
			}
			for _, e := range s.Since(struck.Mark) {
				if e.Name == "expire" {
					t.Errorf("%s of %s was ended by its lease", e.Machine, e.Attempt)
				}
			}
			s.atRest(t)
		})
	}
}
