// Package ledgertest is the suite that every ledger passes, and Faulty, a
// ledger whose calls fail in the three ways that calls fail: not done, done and
// reported failed, done twice (rule 23).
package ledgertest

import (
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger"
)

// World is one empty ledger and what a test may do to it.
type World struct {
	Ledger ledger.Ledger
	// Advance lets d pass by the store's clock.
	Advance func(d time.Duration)
	// Empty loses everything the store has.
	Empty func()
	// Next makes the next call fail. Nil: the suite wraps the ledger in Faulty.
	Next func(Fault)
	// Exact says that no time passes but by Advance.
	Exact bool
}

// Run runs the suite; open makes a fresh World for each test and cleans up
// with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) World) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, w World)
	}{
		{"FirstClaimWins", firstClaimWins},
		{"OneOfAHundredClaimsWins", oneOfAHundredClaimsWins},
		{"OtherBodyIsKeyReused", otherBodyIsKeyReused},
		{"UnclaimFreesOnlyItsOwnKey", unclaimFreesOnlyItsOwnKey},
		{"ClaimThatComesAfterItsUnclaimIsClosed", claimAfterUnclaimIsClosed},
		{"CommittedAndCompletedOutcomesStick", outcomesStick},
		{"SettleRestoresALostKey", settleRestoresALostKey},
		{"ClaimEndsWithItsWindow", claimEndsWithItsWindow},
		{"TenantsDoNotShareKeys", tenantsDoNotShareKeys},
		{"CancelledMarkEnds", cancelledMarkEnds},

		{"ReserveNeedsARebuild", reserveNeedsARebuild},
		{"ReserveTakesTheWholeOrNothing", reserveTakesTheWholeOrNothing},
		{"RepeatedReserveTakesNothing", repeatedReserveTakesNothing},
		{"ReserveThatComesAfterItsReleaseIsClosed", reserveAfterReleaseIsClosed},
		{"PromiseEndsWithItsLease", promiseEndsWithItsLease},
		{"RenewKeepsAndTellsTheLost", renewKeepsAndTellsTheLost},
		{"StaleIncarnationIsRefused", staleIncarnationIsRefused},
		{"RebuildBelievesTheDaemon", rebuildBelievesTheDaemon},
		{"PromisesAreBounded", promisesAreBounded},
		{"ConcurrentReservesTakeEachBlockOnce", concurrentReservesTakeEachBlockOnce},
		{"PromisesAreConserved", promisesAreConserved},

		{"ClaimAndReserveIsBothOrTells", claimAndReserveIsBothOrTells},
		{"FinishReleasesAndSettles", finishReleasesAndSettles},
		{"RegistryKnowsWhoServes", registryKnowsWhoServes},
		{"StaleProcessCannotRegister", staleProcessCannotRegister},
		{"EmptiedLedgerRefusesUntilRebuilt", emptiedLedgerRefusesUntilRebuilt},
		{"DoneThenFailedIsHarmlessWhenRepeated", doneThenFailedIsHarmlessWhenRepeated},
		{"MalformedIsRefused", malformedIsRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := open(t)
			if w.Next == nil {
				f := &Faulty{Ledger: w.Ledger}
				w.Ledger, w.Next = f, f.Next
			}
			c.test(t, w)
		})
	}
}
