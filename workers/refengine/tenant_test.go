package refengine

import (
	"testing"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
)

// The salt of a request's prefixes names its tenant to transferd: the right to read
// one tenant's source that is presented for another's gets nothing, and stands in
// the audit of P's daemon as a crossing. Within a tenant it is a plain refusal.
func TestARightToReadOneTenantsSourceIsNoneToAnothers(t *testing.T) {
	r := newRealRig(t, small())
	log := r.hp.audit
	open := func(salt string) (handoff.Plan, handoff.Token, engine.Opened) {
		a, plan := ask{prompt: promptOf(40), sampling: engine.Sampling{MaxTokens: 1}, salt: salt}, r.plan()
		reserved, err := r.dc.Reserve(t.Context(), a.reservation(plan))
		if err != nil {
			t.Fatal(err)
		}
		var opened engine.Opened
		if _, err := r.pc.Prefill(t.Context(), a.prefill(plan), func(o engine.Opened) { opened = o }, nil); err != nil {
			t.Fatal(err)
		}
		return plan, reserved.Token, opened
	}
	red, redToken, _ := open("red")
	alsoRed, alsoRedToken, ofRed := open("red")
	blue, blueToken, _ := open("blue")
	wantCode(t, "another attempt's", r.move.pull(red, redToken, ofRed), handoff.CodeDenied)
	if n := log.count("act=crossing"); n != 0 {
		t.Errorf("%d crossings within a tenant", n)
	}
	wantCode(t, "another tenant's", r.move.pull(blue, blueToken, ofRed), handoff.CodeDenied)
	eventually(t, "the crossing is in the audit", func() bool { return log.count("act=crossing") == 1 })
	if err := r.move.pull(alsoRed, alsoRedToken, ofRed); err != nil {
		t.Error(err)
	}
	for _, plan := range []handoff.Plan{red, alsoRed, blue} {
		for _, err := range []error{r.move.releaseSource(plan), r.move.releaseTarget(plan)} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	r.clean()
}
