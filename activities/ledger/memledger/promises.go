package memledger

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// seat is one engine's account. Incarnation zero: never rebuilt in this life.
type seat struct {
	handoff.Capacity
	incarnation handoff.Incarnation
	gone        expiring[handoff.Attempt, struct{}]
}

// seatOf gives the engine's account and keeps it for another SeatTTL.
func (l *Ledger) seatOf(now handoff.Instant, engine handoff.EngineID) (*seat, error) {
	s, ok := l.seats.get(now, engine)
	if !ok {
		s = &seat{gone: expiring[handoff.Attempt, struct{}]{max: ledger.MaxTombstones}}
	}
	s.Expire(now)
	return s, l.seats.put(now, engine, s, now+ledger.SeatTTL)
}

// Reserve implements ledger.Promises.
func (l *Ledger) Reserve(ctx context.Context, r ledger.ReserveRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s, err := l.seatOf(now, r.Engine)
	if err != nil {
		return err
	}
	if s.incarnation > r.Incarnation {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "%s is at incarnation %d", r.Engine, s.incarnation)
	}
	if s.incarnation < r.Incarnation {
		return handoff.Errorf(handoff.CodeUnavailable, "%s needs a rebuild", r.Engine)
	}
	if _, ok := s.gone.get(now, r.Attempt); ok {
		return handoff.Errorf(handoff.CodeClosed, "%s was released", r.Attempt)
	}
	held := s.Entries()
	if _, ok := held[r.Attempt]; !ok && len(held) >= ledger.MaxPromises {
		return handoff.Errorf(handoff.CodeCapacity, "%s has %d promises", r.Engine, len(held))
	}
	return s.Capacity.Reserve(now, r.Attempt, r.Blocks, r.Lease)
}

// Release implements ledger.Promises.
func (l *Ledger) Release(ctx context.Context, engine handoff.EngineID, a handoff.Attempt) error {
	if err := ledger.ValidatePromise(engine, a); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s, err := l.seatOf(now, engine)
	if err != nil {
		return err
	}
	s.Capacity.Release(a)
	if s.gone.put(now, a, struct{}{}, now+ledger.TombstoneTTL) != nil {
		s.gone.drop(oldest(s.gone))
		return s.gone.put(now, a, struct{}{}, now+ledger.TombstoneTTL)
	}
	return nil
}

func oldest(m expiring[handoff.Attempt, struct{}]) handoff.Attempt {
	var first handoff.Attempt
	for a := range m.entries {
		if first == (handoff.Attempt{}) || m.endOf(a) < m.endOf(first) {
			first = a
		}
	}
	return first
}

// Renew implements ledger.Promises.
func (l *Ledger) Renew(ctx context.Context, engine handoff.EngineID, as []handoff.Attempt, lease time.Duration) ([]handoff.Attempt, error) {
	if err := ledger.ValidateRenewal(engine, as, lease); err != nil {
		return nil, err
	}
	if err := live(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s, err := l.seatOf(now, engine)
	if err != nil {
		return nil, err
	}
	var lost []handoff.Attempt
	for _, a := range as {
		if !s.Capacity.Renew(now, a, lease) {
			lost = append(lost, a)
		}
	}
	return lost, nil
}

// Rebuild implements ledger.Promises.
func (l *Ledger) Rebuild(ctx context.Context, r ledger.RebuildRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s, err := l.seatOf(now, r.Engine)
	if err != nil {
		return err
	}
	if s.incarnation > r.Incarnation {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "%s is at incarnation %d", r.Engine, s.incarnation)
	}
	s.incarnation, s.Total = r.Incarnation, r.Total
	s.Capacity.Rebuild(now, r.Held, r.Lease)
	return nil
}
