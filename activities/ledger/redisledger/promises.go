package redisledger

import (
	"context"
	"strconv"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Reserve implements ledger.Promises. Idempotent under the attempt.
func (l *Ledger) Reserve(ctx context.Context, r ledger.ReserveRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	_, err := l.call(ctx, call{reserveScript, seatKeys(r.Engine), reserveArgs(r)})
	return err
}

func reserveArgs(r ledger.ReserveRequest) []any {
	return []any{
		r.Attempt.String(), uint64(r.Incarnation), r.Blocks, ms(r.Lease),
		ledger.MaxPromises, ms(ledger.SeatTTL),
	}
}

// Release implements ledger.Promises. Idempotent under the attempt.
func (l *Ledger) Release(ctx context.Context, engine handoff.EngineID, a handoff.Attempt) error {
	if err := ledger.ValidatePromise(engine, a); err != nil {
		return err
	}
	_, err := l.call(ctx, releaseCall(engine, a))
	return err
}

func releaseCall(engine handoff.EngineID, a handoff.Attempt) call {
	return call{releaseScript, seatKeys(engine), []any{
		a.String(), ms(ledger.TombstoneTTL), ledger.MaxTombstones, ms(ledger.SeatTTL),
	}}
}

// Renew implements ledger.Promises. Idempotent: a lease only grows.
func (l *Ledger) Renew(ctx context.Context, engine handoff.EngineID, as []handoff.Attempt, lease time.Duration) ([]handoff.Attempt, error) {
	if err := ledger.ValidateRenewal(engine, as, lease); err != nil {
		return nil, err
	}
	args := []any{ms(lease), ms(ledger.SeatTTL)}
	for _, a := range as {
		args = append(args, a.String())
	}
	r, err := l.call(ctx, call{renewScript, seatKeys(engine), args})
	if err != nil {
		return nil, err
	}
	var lost []handoff.Attempt
	for _, v := range r.values {
		i, err := strconv.Atoi(v)
		if err != nil || i < 0 || i >= len(as) {
			return nil, malformed(r)
		}
		lost = append(lost, as[i])
	}
	return lost, nil
}

// Rebuild implements ledger.Promises. Idempotent under the list.
func (l *Ledger) Rebuild(ctx context.Context, r ledger.RebuildRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	args := []any{uint64(r.Incarnation), r.Total, ms(r.Lease), ms(ledger.SeatTTL)}
	for a, blocks := range r.Held {
		args = append(args, a.String(), blocks)
	}
	_, err := l.call(ctx, call{rebuildScript, seatKeys(r.Engine), args})
	return err
}
