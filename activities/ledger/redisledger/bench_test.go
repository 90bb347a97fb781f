package redisledger

import (
	"strconv"
	"testing"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// The ledger's part of one request: two round trips.
func BenchmarkClaimAndReserveThenFinish(b *testing.B) {
	l := startServer(b).open()
	rebuild(b, l, nil)
	for i := 0; b.Loop(); i++ {
		key, a := strconv.Itoa(i), attempt(i+1)
		c := ledger.ClaimRequest{Tenant: "t", Key: key, Body: handoff.Digest{1}, Handoff: "h1", Owner: "g", Window: lease}
		r := ledger.ReserveRequest{Engine: "d1", Incarnation: 3, Attempt: a, Blocks: 4, Lease: lease}
		if _, err := l.ClaimAndReserve(b.Context(), c, r); err != nil {
			b.Fatal(err)
		}
		f := ledger.SettleRequest{Tenant: "t", Key: key, Body: c.Body, Handoff: "h1", Outcome: "completed", Window: lease}
		if err := l.Finish(b.Context(), f, "d1", a); err != nil {
			b.Fatal(err)
		}
	}
}
