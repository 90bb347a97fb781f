// Package memledger keeps a ledger in the memory of one process: for tests, for
// a single process that needs no other, and as the model that redisledger is
// compared with. Promises are the pure handoff.Capacity, stepped under a mutex.
package memledger

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Limits of what redisledger leaves to Redis's own memory limit.
const (
	// MaxClaims bounds the remembered keys.
	MaxClaims = 1 << 20
	// MaxMarks bounds the cancelled marks.
	MaxMarks = 1 << 20
)

// Ledger is a ledger.Ledger in memory.
type Ledger struct {
	now func() handoff.Instant

	mu      sync.Mutex
	life    uint64
	claims  expiring[keyID, claim]
	marks   expiring[handoff.HandoffID, struct{}]
	engines expiring[handoff.EngineID, registration]
	seats   expiring[handoff.EngineID, *seat]
}

var _ ledger.Ledger = (*Ledger)(nil)

// New makes an empty ledger. A nil clock is the process's monotonic one.
func New(clock func() handoff.Instant) *Ledger {
	if clock == nil {
		start := time.Now()
		clock = func() handoff.Instant { return time.Since(start) }
	}
	l := &Ledger{now: clock}
	l.Empty()
	return l
}

// Empty loses everything, as a store without persistence does when it restarts.
func (l *Ledger) Empty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life++
	l.claims = expiring[keyID, claim]{max: MaxClaims}
	l.marks = expiring[handoff.HandoffID, struct{}]{max: MaxMarks}
	l.engines = expiring[handoff.EngineID, registration]{max: ledger.MaxEngines}
	l.seats = expiring[handoff.EngineID, *seat]{max: ledger.MaxEngines}
}

// Born implements ledger.Promises.
func (l *Ledger) Born(ctx context.Context) (string, error) {
	if err := live(ctx); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return strconv.FormatUint(l.life, 10), nil
}

// ClaimAndReserve implements ledger.Ledger.
func (l *Ledger) ClaimAndReserve(ctx context.Context, c ledger.ClaimRequest, r ledger.ReserveRequest) (ledger.ClaimAnswer, error) {
	if err := r.Validate(); err != nil {
		return ledger.ClaimAnswer{}, err
	}
	answer, err := l.Claim(ctx, c)
	if err != nil || !answer.Mine || answer.State == ledger.StateSettled {
		return answer, err
	}
	return answer, l.Reserve(ctx, r)
}

// Finish implements ledger.Ledger.
func (l *Ledger) Finish(ctx context.Context, s ledger.SettleRequest, engine handoff.EngineID, a handoff.Attempt) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := l.Release(ctx, engine, a); err != nil {
		return err
	}
	return l.Settle(ctx, s)
}

// live refuses an operation whose caller has gone, as every adapter does.
func live(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "not asked: %v", err)
	}
	return nil
}
