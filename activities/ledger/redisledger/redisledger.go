// Package redisledger keeps the ledger in Redis 6 or newer (or a server that
// speaks its scripts): one Lua script a verb, one round trip a call, but for
// Engines, which takes two.
//
// Leases end by the server's own clock (TIME, inside the scripts), so gateways
// need not agree on one. A lease here is a promise only: a jump of that clock
// costs a refusal. Every key has a time to live. The server should not evict
// (maxmemory-policy noeviction): an evicted promise is a lost one.
//
// A loss is noticed twice over. An engine's account names the server's run id
// at its last Rebuild: emptied, the account is gone; restarted or failed over,
// the run id differs; either way Reserve refuses until a Rebuild. A server that
// hides its run id shows the first only.
//
// The library's own retries are off, for an operation whose answer was lost is
// unknown, and only the caller knows whether to ask again (rule 23). A Cluster
// client still asks again after a redirection or a broken connection; the
// scripts stand that.
package redisledger

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// CallTimeout bounds every call unless Options say otherwise, so that a silent
// Redis refuses within L8's second.
const CallTimeout = 500 * time.Millisecond

// Ledger is a ledger.Ledger in Redis.
type Ledger struct {
	client  redis.UniversalClient
	cluster bool // scripts may touch one hash tag only
	timeout time.Duration
}

var _ ledger.Ledger = (*Ledger)(nil)

// New uses the caller's client, which stays the caller's to close. It refuses
// one that retries by itself.
func New(client redis.UniversalClient) (*Ledger, error) {
	l := &Ledger{client: client, timeout: CallTimeout}
	switch c := client.(type) {
	case *redis.Client:
		if n := c.Options().MaxRetries; n > 0 {
			return nil, handoff.Errorf(handoff.CodeInvalid, "client retries %d times by itself", n)
		}
	case *redis.ClusterClient:
		l.cluster = true
	default:
		return nil, handoff.Errorf(handoff.CodeInvalid, "client of type %T", client)
	}
	return l, nil
}

// Close closes the connections.
func (l *Ledger) Close() error { return l.client.Close() }

// Born implements ledger.Promises. Idempotent: the first value stands.
func (l *Ledger) Born(ctx context.Context) (string, error) {
	r, err := l.call(ctx, call{bornScript, []string{bornKey}, []any{rand.Text(), ms(ledger.WindowMax)}})
	if err != nil {
		return "", err
	}
	if len(r.values) != 1 {
		return "", malformed(r)
	}
	return r.values[0], nil
}

// ClaimAndReserve implements ledger.Ledger: one script, except on a Cluster,
// where claim and engine live in two slots: there it is two calls.
func (l *Ledger) ClaimAndReserve(ctx context.Context, c ledger.ClaimRequest, r ledger.ReserveRequest) (ledger.ClaimAnswer, error) {
	if err := r.Validate(); err != nil {
		return ledger.ClaimAnswer{}, err
	}
	if l.cluster {
		answer, err := l.Claim(ctx, c)
		if err != nil || !answer.Mine || answer.State == ledger.StateSettled {
			return answer, err
		}
		return answer, l.Reserve(ctx, r)
	}
	if err := c.Validate(); err != nil {
		return ledger.ClaimAnswer{}, err
	}
	reply, err := l.call(ctx, call{
		claimReserve,
		append(seatKeys(r.Engine), claimKey(c.Tenant, c.Key)...),
		append(claimArgs(c), reserveArgs(r)...),
	})
	if len(reply.values) == 0 && err != nil {
		return ledger.ClaimAnswer{}, err
	}
	answer, bad := reply.claim()
	if bad != nil {
		return ledger.ClaimAnswer{}, bad
	}
	return answer, err
}

// Finish implements ledger.Ledger: one pipeline of the two scripts.
func (l *Ledger) Finish(ctx context.Context, s ledger.SettleRequest, engine handoff.EngineID, a handoff.Attempt) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := ledger.ValidatePromise(engine, a); err != nil {
		return err
	}
	_, errs := l.calls(ctx, []call{releaseCall(engine, a), settleCall(s)})
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}
