package ledgertest

import (
	"sync"
	"testing"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

func reserveNeedsARebuild(t *testing.T, w World) {
	must(t, w.Ledger.Register(t.Context(), Seen(engine, 3), long))
	wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(1), 1)), handoff.CodeUnavailable)
	must(t, w.rebuild(t, 10, nil))
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(1), 1)))
}

func reserveTakesTheWholeOrNothing(t *testing.T, w World) {
	w.built(t, 10)
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(1), 6)))
	wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(2), 5)), handoff.CodeCapacity)
	equal(t, "used", w.used(t), 6)
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(3), 4)))
	equal(t, "used", w.used(t), 10)
	must(t, w.Ledger.Release(t.Context(), engine, attempt(1)))
	must(t, w.Ledger.Release(t.Context(), engine, attempt(1)))
	equal(t, "used", w.used(t), 4)
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(2), 5)))
}

func repeatedReserveTakesNothing(t *testing.T, w World) {
	w.built(t, 10)
	for range 3 {
		must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(1), 6)))
		equal(t, "used", w.used(t), 6)
	}
}

func reserveAfterReleaseIsClosed(t *testing.T, w World) {
	w.built(t, 10)
	must(t, w.Ledger.Release(t.Context(), engine, attempt(1)))
	wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(1), 1)), handoff.CodeClosed)
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(2), 1)))
	must(t, w.Ledger.Release(t.Context(), engine, attempt(2)))
	wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(2), 1)), handoff.CodeClosed)
	equal(t, "used", w.used(t), 0)
}

func promiseEndsWithItsLease(t *testing.T, w World) {
	w.built(t, 10)
	r := reserveOf(attempt(1), 10)
	r.Lease = short
	must(t, w.Ledger.Reserve(t.Context(), r))
	wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(2), 1)), handoff.CodeCapacity)
	w.Advance(2 * short)
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(2), 10))) // before anything else sweeps
	equal(t, "used", w.used(t), 10)
}

func renewKeepsAndTellsTheLost(t *testing.T, w World) {
	w.built(t, 10)
	for i := 1; i <= 3; i++ {
		r := reserveOf(attempt(i), 2)
		r.Lease = short
		must(t, w.Ledger.Reserve(t.Context(), r))
	}
	must(t, w.Ledger.Release(t.Context(), engine, attempt(3)))
	lost, err := w.Ledger.Renew(t.Context(), engine, []handoff.Attempt{attempt(3), attempt(2), attempt(7)}, long)
	must(t, err)
	if len(lost) != 2 || lost[0] != attempt(3) || lost[1] != attempt(7) {
		t.Fatalf("lost %v", lost)
	}
	// A shorter renewal does not shorten.
	_, err = w.Ledger.Renew(t.Context(), engine, []handoff.Attempt{attempt(2)}, short)
	must(t, err)
	w.Advance(2 * short)
	equal(t, "used", w.used(t), 2)
	lost, err = w.Ledger.Renew(t.Context(), engine, []handoff.Attempt{attempt(1), attempt(2)}, long)
	must(t, err)
	if len(lost) != 1 || lost[0] != attempt(1) {
		t.Fatalf("lost %v", lost)
	}
}

func staleIncarnationIsRefused(t *testing.T, w World) {
	w.built(t, 10)
	r := reserveOf(attempt(1), 1)
	r.Incarnation = 2
	wantCode(t, w.Ledger.Reserve(t.Context(), r), handoff.CodeStaleIncarnation)
	r.Incarnation = 4 // the ledger has not heard that daemon's list
	wantCode(t, w.Ledger.Reserve(t.Context(), r), handoff.CodeUnavailable)
	stale := ledger.RebuildRequest{Engine: engine, Incarnation: 2, Total: 10, Lease: long}
	wantCode(t, w.Ledger.Rebuild(t.Context(), stale), handoff.CodeStaleIncarnation)
	// Past 2^53 neighbours still differ.
	const far = handoff.Incarnation(1<<63 + 1)
	must(t, w.Ledger.Rebuild(t.Context(), ledger.RebuildRequest{Engine: engine, Incarnation: far, Total: 10, Lease: long}))
	r.Incarnation = far - 1
	wantCode(t, w.Ledger.Reserve(t.Context(), r), handoff.CodeStaleIncarnation)
	r.Incarnation = far
	must(t, w.Ledger.Reserve(t.Context(), r))
}

func rebuildBelievesTheDaemon(t *testing.T, w World) {
	w.built(t, 10)
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(1), 2)))
	r := reserveOf(attempt(2), 3)
	r.Lease = short
	must(t, w.Ledger.Reserve(t.Context(), r))
	held := map[handoff.Attempt]uint32{attempt(1): 5, attempt(4): 1}
	for range 2 {
		must(t, w.rebuild(t, 10, held))
		equal(t, "used", w.used(t), 5+1+3) // what the daemon does not know keeps its lease
	}
	w.Advance(2 * short)
	equal(t, "used", w.used(t), 6)
	must(t, w.rebuild(t, 4, held)) // more held than there is: no room, no underflow
	wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(5), 1)), handoff.CodeCapacity)
}

func promisesAreBounded(t *testing.T, w World) {
	w.built(t, ledger.MaxBlocks)
	held := map[handoff.Attempt]uint32{}
	for i := range ledger.MaxPromises {
		held[attempt(i+1)] = 1
	}
	must(t, w.rebuild(t, ledger.MaxBlocks, held))
	next := attempt(ledger.MaxPromises + 1)
	wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(next, 1)), handoff.CodeCapacity)
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(1), 1))) // a repeat has its place
	held[next] = 1
	wantCode(t, w.rebuild(t, ledger.MaxBlocks, held), handoff.CodeTooLarge)
	must(t, w.Ledger.Release(t.Context(), engine, attempt(1)))
	must(t, w.Ledger.Reserve(t.Context(), reserveOf(next, 1)))
	equal(t, "used", w.used(t), ledger.MaxPromises)
}

func concurrentReservesTakeEachBlockOnce(t *testing.T, w World) {
	const total, askers = 10, 50
	w.built(t, total)
	errs := make([]error, askers)
	var wg sync.WaitGroup
	for i := range askers {
		wg.Go(func() { errs[i] = w.Ledger.Reserve(t.Context(), reserveOf(attempt(i+1), 1)) })
	}
	wg.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
			continue
		}
		wantCode(t, err, handoff.CodeCapacity)
	}
	equal(t, "taken", taken, total)
	equal(t, "used", w.used(t), total)
}
