package memledger_test

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/ledgertest"
	"github.com/surehand/surehand/activities/ledger/memledger"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemledgerPassesTheSuite(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.World {
		var now atomic.Int64
		l := memledger.New(func() handoff.Instant { return handoff.Instant(now.Load()) })
		return ledgertest.World{
			Ledger:  l,
			Advance: func(d time.Duration) { now.Add(int64(d)) },
			Empty:   l.Empty,
			Exact:   true,
		}
	})
}

// Of more releases than are remembered the oldest are forgotten first.
func TestTheOldestTombstoneGoesFirst(t *testing.T) {
	now := handoff.Instant(0)
	l := memledger.New(func() handoff.Instant { return now })
	err := l.Rebuild(t.Context(), ledger.RebuildRequest{Engine: "d", Incarnation: 1, Total: 8, Lease: time.Minute})
	at := func(n int) handoff.Attempt {
		return handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: handoff.Nonce(n + 1)}
	}
	for n := range ledger.MaxTombstones + 2 {
		if now++; err == nil {
			err = l.Release(t.Context(), "d", at(n))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]handoff.Code{0: handoff.CodeNone, 1: handoff.CodeNone, 2: handoff.CodeClosed, ledger.MaxTombstones + 1: handoff.CodeClosed} {
		err := l.Reserve(t.Context(), ledger.ReserveRequest{Engine: "d", Incarnation: 1, Attempt: at(n), Blocks: 1, Lease: time.Minute})
		if handoff.CodeOf(err) != want {
			t.Errorf("release %d: %v, want %s", n, err, want)
		}
	}
}

// A promise whose lease ended is lost to a renewal that comes before anything else.
func TestARenewalAfterTheLeaseEndedIsTold(t *testing.T) {
	now := handoff.Instant(0)
	l := memledger.New(func() handoff.Instant { return now })
	a := handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 1}
	if err := l.Rebuild(t.Context(), ledger.RebuildRequest{Engine: "d", Incarnation: 1, Total: 8, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := l.Reserve(t.Context(), ledger.ReserveRequest{Engine: "d", Incarnation: 1, Attempt: a, Blocks: 1, Lease: time.Second}); err != nil {
		t.Fatal(err)
	}
	now += time.Second
	if lost, err := l.Renew(t.Context(), "d", []handoff.Attempt{a}, time.Second); err != nil || len(lost) != 1 {
		t.Errorf("lost: %v, %v", lost, err)
	}
}
