package redisledger

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// Claim implements ledger.Claims. Idempotent under (handoff, owner).
func (l *Ledger) Claim(ctx context.Context, r ledger.ClaimRequest) (ledger.ClaimAnswer, error) {
	if err := r.Validate(); err != nil {
		return ledger.ClaimAnswer{}, err
	}
	reply, err := l.call(ctx, call{claimScript, claimKey(r.Tenant, r.Key), claimArgs(r)})
	if err != nil {
		return ledger.ClaimAnswer{}, err
	}
	return reply.claim()
}

func claimArgs(r ledger.ClaimRequest) []any {
	return []any{hex.EncodeToString(r.Body[:]), string(r.Handoff), r.Owner, ms(r.Window)}
}

func (r reply) claim() (ledger.ClaimAnswer, error) {
	if len(r.values) != 5 {
		return ledger.ClaimAnswer{}, malformed(r)
	}
	if s := ledger.State(r.values[3]); s != ledger.StateClaimed && s != ledger.StateSettled {
		return ledger.ClaimAnswer{}, malformed(r)
	}
	return ledger.ClaimAnswer{
		Mine:    r.values[0] == "1",
		Handoff: handoff.HandoffID(r.values[1]),
		Owner:   r.values[2],
		State:   ledger.State(r.values[3]),
		Outcome: ledger.Outcome(r.values[4]),
	}, nil
}

// Settle implements ledger.Claims. Idempotent under (handoff, outcome).
func (l *Ledger) Settle(ctx context.Context, r ledger.SettleRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	_, err := l.call(ctx, settleCall(r))
	return err
}

func settleCall(r ledger.SettleRequest) call {
	return call{settleScript, claimKey(r.Tenant, r.Key), []any{
		hex.EncodeToString(r.Body[:]), string(r.Handoff), string(r.Outcome), ms(r.Window),
	}}
}

// Unclaim implements ledger.Claims. Idempotent under the handoff.
func (l *Ledger) Unclaim(ctx context.Context, tenant, key string, h handoff.HandoffID) error {
	if err := ledger.ValidateKey(tenant, key); err != nil {
		return err
	}
	if err := handoff.ValidateID("handoff", string(h)); err != nil {
		return err
	}
	_, err := l.call(ctx, call{unclaimScript, claimKey(tenant, key), []any{string(h), ms(ledger.TombstoneTTL)}})
	return err
}

// MarkCancelled implements ledger.Claims. Idempotent: a mark is a mark.
func (l *Ledger) MarkCancelled(ctx context.Context, h handoff.HandoffID, ttl time.Duration) error {
	if err := ledger.ValidateMark(h, ttl); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if err := l.client.Set(ctx, markKey(h), "1", ttl).Err(); err != nil {
		return unknown(err)
	}
	return nil
}

// Cancelled implements ledger.Claims.
func (l *Ledger) Cancelled(ctx context.Context, h handoff.HandoffID) (bool, error) {
	if err := handoff.ValidateID("handoff", string(h)); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	n, err := l.client.Exists(ctx, markKey(h)).Result()
	if err != nil {
		return false, unknown(err)
	}
	return n > 0, nil
}
