package ledgertest

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Fault is how a call fails.
type Fault uint8

const (
	FaultNone    Fault = iota
	FaultNotDone       // nothing is done; the caller hears nothing
	FaultDone          // it is done; the caller hears nothing
	FaultTwice         // it is done twice; the caller hears the second answer
)

// Faulty is a ledger whose next call fails as Next says. It is safe for
// concurrent use when its Ledger is.
type Faulty struct {
	ledger.Ledger
	mu   sync.Mutex
	next Fault
}

// Next sets the fault of the one call that comes next.
func (f *Faulty) Next(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = fault
}

func (f *Faulty) take() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := f.next
	f.next = FaultNone
	return fault
}

func faulted[T any](f *Faulty, op func() (T, error)) (T, error) {
	var none T
	switch f.take() {
	case FaultNotDone:
		return none, unheard()
	case FaultDone:
		// What it answered is just what the caller must not hear.
		_, _ = op()
		return none, unheard()
	case FaultTwice:
		_, _ = op()
	}
	return op()
}

func unheard() error {
	return handoff.Errorf(handoff.CodeUnavailable, "injected: no answer")
}

func erring(f *Faulty, op func() error) error {
	_, err := faulted(f, func() (struct{}, error) { return struct{}{}, op() })
	return err
}

// Claim implements ledger.Claims.
func (f *Faulty) Claim(ctx context.Context, r ledger.ClaimRequest) (ledger.ClaimAnswer, error) {
	return faulted(f, func() (ledger.ClaimAnswer, error) { return f.Ledger.Claim(ctx, r) })
}

// Settle implements ledger.Claims.
func (f *Faulty) Settle(ctx context.Context, r ledger.SettleRequest) error {
	return erring(f, func() error { return f.Ledger.Settle(ctx, r) })
}

// Unclaim implements ledger.Claims.
func (f *Faulty) Unclaim(ctx context.Context, tenant, key string, h handoff.HandoffID) error {
	return erring(f, func() error { return f.Ledger.Unclaim(ctx, tenant, key, h) })
}

// MarkCancelled implements ledger.Claims.
func (f *Faulty) MarkCancelled(ctx context.Context, h handoff.HandoffID, ttl time.Duration) error {
	return erring(f, func() error { return f.Ledger.MarkCancelled(ctx, h, ttl) })
}

// Cancelled implements ledger.Claims.
func (f *Faulty) Cancelled(ctx context.Context, h handoff.HandoffID) (bool, error) {
	return faulted(f, func() (bool, error) { return f.Ledger.Cancelled(ctx, h) })
}

// Reserve implements ledger.Promises.
func (f *Faulty) Reserve(ctx context.Context, r ledger.ReserveRequest) error {
	return erring(f, func() error { return f.Ledger.Reserve(ctx, r) })
}

// Release implements ledger.Promises.
func (f *Faulty) Release(ctx context.Context, engine handoff.EngineID, a handoff.Attempt) error {
	return erring(f, func() error { return f.Ledger.Release(ctx, engine, a) })
}

// Renew implements ledger.Promises.
func (f *Faulty) Renew(ctx context.Context, engine handoff.EngineID, as []handoff.Attempt, lease time.Duration) ([]handoff.Attempt, error) {
	return faulted(f, func() ([]handoff.Attempt, error) { return f.Ledger.Renew(ctx, engine, as, lease) })
}

// Rebuild implements ledger.Promises.
func (f *Faulty) Rebuild(ctx context.Context, r ledger.RebuildRequest) error {
	return erring(f, func() error { return f.Ledger.Rebuild(ctx, r) })
}

// Born implements ledger.Promises.
func (f *Faulty) Born(ctx context.Context) (string, error) {
	return faulted(f, func() (string, error) { return f.Ledger.Born(ctx) })
}

// ClaimAndReserve implements ledger.Ledger.
func (f *Faulty) ClaimAndReserve(ctx context.Context, c ledger.ClaimRequest, r ledger.ReserveRequest) (ledger.ClaimAnswer, error) {
	return faulted(f, func() (ledger.ClaimAnswer, error) { return f.Ledger.ClaimAndReserve(ctx, c, r) })
}

// Finish implements ledger.Ledger.
func (f *Faulty) Finish(ctx context.Context, s ledger.SettleRequest, engine handoff.EngineID, a handoff.Attempt) error {
	return erring(f, func() error { return f.Ledger.Finish(ctx, s, engine, a) })
}

// Register implements ledger.Registry.
func (f *Faulty) Register(ctx context.Context, e ledger.Engine, ttl time.Duration) error {
	return erring(f, func() error { return f.Ledger.Register(ctx, e, ttl) })
}

// Engines implements ledger.Registry.
func (f *Faulty) Engines(ctx context.Context) ([]ledger.Registered, error) {
	return faulted(f, func() ([]ledger.Registered, error) { return f.Ledger.Engines(ctx) })
}

// Deregister implements ledger.Registry.
func (f *Faulty) Deregister(ctx context.Context, engine handoff.EngineID, process handoff.Incarnation) error {
	return erring(f, func() error { return f.Ledger.Deregister(ctx, engine, process) })
}
