package memledger_test

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

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
