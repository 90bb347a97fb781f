package memledger

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

type keyID struct{ tenant, key string }

// claim is one remembered key. stateFreed is the tombstone of an Unclaim.
type claim struct {
	body    handoff.Digest
	handoff handoff.HandoffID
	owner   string
	state   ledger.State
	outcome ledger.Outcome
}

const stateFreed ledger.State = "freed"

// Claim implements ledger.Claims.
func (l *Ledger) Claim(ctx context.Context, r ledger.ClaimRequest) (ledger.ClaimAnswer, error) {
	if err := r.Validate(); err != nil {
		return ledger.ClaimAnswer{}, err
	}
	if err := live(ctx); err != nil {
		return ledger.ClaimAnswer{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, id := l.now(), keyID{r.Tenant, r.Key}
	c, ok := l.claims.get(now, id)
	switch {
	case ok && c.state == stateFreed && c.handoff == r.Handoff:
		return ledger.ClaimAnswer{}, handoff.Errorf(handoff.CodeClosed, "the claim of %s was freed", r.Handoff)
	case !ok || c.state == stateFreed:
		c = claim{r.Body, r.Handoff, r.Owner, ledger.StateClaimed, ""}
		if err := l.claims.put(now, id, c, now+r.Window); err != nil {
			return ledger.ClaimAnswer{}, err
		}
	case c.body != r.Body:
		return ledger.ClaimAnswer{}, handoff.Errorf(handoff.CodeKeyReused, "held by %s with another body", c.handoff)
	}
	return ledger.ClaimAnswer{
		Mine:    c.handoff == r.Handoff && c.owner == r.Owner,
		Handoff: c.handoff, Owner: c.owner, State: c.state, Outcome: c.outcome,
	}, nil
}

// Settle implements ledger.Claims.
func (l *Ledger) Settle(ctx context.Context, r ledger.SettleRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, id := l.now(), keyID{r.Tenant, r.Key}
	c, ok := l.claims.get(now, id)
	if !ok || c.state == stateFreed {
		return l.claims.put(now, id, claim{r.Body, r.Handoff, "", ledger.StateSettled, r.Outcome}, now+r.Window)
	}
	switch {
	case c.handoff != r.Handoff:
		return handoff.Errorf(handoff.CodeConflict, "the key is held by %s", c.handoff)
	case c.body != r.Body:
		return handoff.Errorf(handoff.CodeKeyReused, "held by %s with another body", c.handoff)
	case c.state == ledger.StateSettled && (c.outcome == r.Outcome || r.Outcome == ledger.OutcomeCommitted):
		return nil
	case c.state == ledger.StateSettled && c.outcome != ledger.OutcomeCommitted:
		return handoff.Errorf(handoff.CodeConflict, "settled as %s", c.outcome)
	}
	c.state, c.outcome = ledger.StateSettled, r.Outcome
	return l.claims.put(now, id, c, now+r.Window)
}

// Unclaim implements ledger.Claims.
func (l *Ledger) Unclaim(ctx context.Context, tenant, key string, h handoff.HandoffID) error {
	if err := ledger.ValidateKey(tenant, key); err != nil {
		return err
	}
	if err := handoff.ValidateID("handoff", string(h)); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, id := l.now(), keyID{tenant, key}
	c, ok := l.claims.get(now, id)
	if ok && c.handoff != h {
		return nil
	}
	if ok && c.state == ledger.StateSettled {
		return handoff.Errorf(handoff.CodeConflict, "settled as %s", c.outcome)
	}
	return l.claims.put(now, id, claim{handoff: h, state: stateFreed}, now+ledger.TombstoneTTL)
}

// MarkCancelled implements ledger.Claims.
func (l *Ledger) MarkCancelled(ctx context.Context, h handoff.HandoffID, ttl time.Duration) error {
	if err := ledger.ValidateMark(h, ttl); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	return l.marks.put(now, h, struct{}{}, now+ttl)
}

// Cancelled implements ledger.Claims.
func (l *Ledger) Cancelled(ctx context.Context, h handoff.HandoffID) (bool, error) {
	if err := handoff.ValidateID("handoff", string(h)); err != nil {
		return false, err
	}
	if err := live(ctx); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.marks.get(l.now(), h)
	return ok, nil
}
