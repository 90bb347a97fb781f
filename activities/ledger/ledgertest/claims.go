package ledgertest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

func firstClaimWins(t *testing.T, w World) {
	first, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	must(t, err)
	equal(t, "first", first, ledger.ClaimAnswer{Mine: true, Handoff: "h1", Owner: "g1", State: ledger.StateClaimed})
	again, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	must(t, err)
	equal(t, "repeat", again, first)
	first.Mine = false
	for _, c := range []ledger.ClaimRequest{claimOf("h1", "g2"), claimOf("h2", "g1")} {
		other, err := w.Ledger.Claim(t.Context(), c)
		must(t, err)
		equal(t, "other's answer", other, first)
	}
}

func oneOfAHundredClaimsWins(t *testing.T, w World) {
	const claimers = 100
	answers := make([]ledger.ClaimAnswer, claimers)
	errs := make([]error, claimers)
	var wg sync.WaitGroup
	for i := range claimers {
		wg.Go(func() {
			answers[i], errs[i] = w.Ledger.Claim(t.Context(), claimOf("h1", fmt.Sprintf("g%d", i)))
		})
	}
	wg.Wait()
	winners := 0
	for i, a := range answers {
		must(t, errs[i])
		if a.Mine {
			winners++
		}
		equal(t, "owner", a.Owner, answers[0].Owner)
	}
	equal(t, "winners", winners, 1)
}

func otherBodyIsKeyReused(t *testing.T, w World) {
	_, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	must(t, err)
	c := claimOf("h1", "g1")
	c.Body = otherBody
	_, err = w.Ledger.Claim(t.Context(), c)
	wantCode(t, err, handoff.CodeKeyReused)
	s := settleOf("h1", ledger.OutcomeCommitted)
	s.Body = otherBody
	wantCode(t, w.Ledger.Settle(t.Context(), s), handoff.CodeKeyReused)
}

func unclaimFreesOnlyItsOwnKey(t *testing.T, w World) {
	_, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	must(t, err)
	must(t, w.Ledger.Unclaim(t.Context(), "t", "k", "h2"))
	a, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	must(t, err)
	equal(t, "mine after another's unclaim", a.Mine, true)

	must(t, w.Ledger.Unclaim(t.Context(), "t", "k", "h1"))
	must(t, w.Ledger.Unclaim(t.Context(), "t", "k", "h1"))
	c := claimOf("h2", "g2")
	c.Body = otherBody // a refused key may come back with another body
	a, err = w.Ledger.Claim(t.Context(), c)
	must(t, err)
	equal(t, "mine after the unclaim", a.Mine, true)
	must(t, w.Ledger.Unclaim(t.Context(), "t", "k", "h1")) // late
	a, err = w.Ledger.Claim(t.Context(), c)
	must(t, err)
	equal(t, "mine after a late unclaim", a.Mine, true)
}

func claimAfterUnclaimIsClosed(t *testing.T, w World) {
	must(t, w.Ledger.Unclaim(t.Context(), "t", "k", "h1"))
	_, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	wantCode(t, err, handoff.CodeClosed)
	a, err := w.Ledger.Claim(t.Context(), claimOf("h2", "g1"))
	must(t, err)
	equal(t, "mine", a.Mine, true)
}

func outcomesStick(t *testing.T, w World) {
	ctx := t.Context()
	_, err := w.Ledger.Claim(ctx, claimOf("h1", "g1"))
	must(t, err)
	must(t, w.Ledger.Settle(ctx, settleOf("h1", ledger.OutcomeCommitted)))
	wantCode(t, w.Ledger.Unclaim(ctx, "t", "k", "h1"), handoff.CodeConflict)
	must(t, w.Ledger.Settle(ctx, settleOf("h1", ledger.OutcomeCompleted)))
	must(t, w.Ledger.Settle(ctx, settleOf("h1", ledger.OutcomeCompleted)))
	must(t, w.Ledger.Settle(ctx, settleOf("h1", ledger.OutcomeCommitted))) // late
	wantCode(t, w.Ledger.Settle(ctx, settleOf("h1", "stream_broken")), handoff.CodeConflict)
	wantCode(t, w.Ledger.Settle(ctx, settleOf("h2", ledger.OutcomeCompleted)), handoff.CodeConflict)
	wantCode(t, w.Ledger.Unclaim(ctx, "t", "k", "h1"), handoff.CodeConflict)
	a, err := w.Ledger.Claim(ctx, claimOf("h9", "g9"))
	must(t, err)
	equal(t, "answer", a, ledger.ClaimAnswer{Handoff: "h1", Owner: "g1", State: ledger.StateSettled, Outcome: ledger.OutcomeCompleted})
}

func settleRestoresALostKey(t *testing.T, w World) {
	_, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	must(t, err)
	w.Empty()
	must(t, w.Ledger.Settle(t.Context(), settleOf("h1", ledger.OutcomeCompleted)))
	a, err := w.Ledger.Claim(t.Context(), claimOf("h2", "g2"))
	must(t, err)
	equal(t, "answer", a, ledger.ClaimAnswer{Handoff: "h1", State: ledger.StateSettled, Outcome: ledger.OutcomeCompleted})
}

func claimEndsWithItsWindow(t *testing.T, w World) {
	c := claimOf("h1", "g1")
	c.Window = short
	_, err := w.Ledger.Claim(t.Context(), c)
	must(t, err)
	w.Advance(2 * short)
	c = claimOf("h2", "g2")
	c.Body = otherBody
	a, err := w.Ledger.Claim(t.Context(), c)
	must(t, err)
	equal(t, "mine", a.Mine, true)
}

func tenantsDoNotShareKeys(t *testing.T, w World) {
	_, err := w.Ledger.Claim(t.Context(), claimOf("h1", "g1"))
	must(t, err)
	for _, k := range [][2]string{{"u", "k"}, {"tk", "k"}, {"t", "kk"}} {
		c := claimOf("h2", "g2")
		c.Tenant, c.Key = k[0], k[1]
		a, err := w.Ledger.Claim(t.Context(), c)
		must(t, err)
		equal(t, fmt.Sprint("mine of ", k), a.Mine, true)
	}
}

func cancelledMarkEnds(t *testing.T, w World) {
	ctx := t.Context()
	is, err := w.Ledger.Cancelled(ctx, "h1")
	must(t, err)
	equal(t, "cancelled", is, false)
	must(t, w.Ledger.MarkCancelled(ctx, "h1", long))
	must(t, w.Ledger.MarkCancelled(ctx, "h2", short))
	w.Advance(2 * short)
	is, err = w.Ledger.Cancelled(ctx, "h1")
	must(t, err)
	equal(t, "cancelled", is, true)
	is, err = w.Ledger.Cancelled(ctx, "h2")
	must(t, err)
	equal(t, "cancelled after its time", is, false)
}
