// Package quota bounds what each tenant may ask of a whole fleet: requests a
// second, and tokens of requests in flight. The counts lie in Redis, so they
// hold across gateways; a gateway's own holds end by lease when it dies.
//
// When Redis does not answer, a request of a tenant that has limits is refused
// with CodeUnavailable: nobody is let past a limit that cannot be looked at, and
// without Redis nothing could be placed anyway. Streams under way go on. A
// tenant without limits never asks.
package quota

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Limits of one tenant; zero is none.
type Limits struct {
	RequestsPerSecond float64
	Burst             int
	TokensInFlight    int64
}

// None says that there is nothing to look at.
func (l Limits) None() bool { return l.RequestsPerSecond == 0 && l.TokensInFlight == 0 }

// Refused is a request over a limit; After says when to come again, zero when
// that is not known.
type Refused struct {
	Cause *handoff.Error
	Limit string // the name of the limit, as the access file has it
	After time.Duration
}

func (r *Refused) Error() string { return r.Cause.Error() }

// Unwrap gives the typed refusal.
func (r *Refused) Unwrap() error { return r.Cause }

// Limiter counts. Safe for concurrent use.
type Limiter interface {
	// Take counts a request of so many tokens. The function gives the tokens
	// back, once; it never fails. *Refused when a limit would be passed.
	Take(ctx context.Context, tenant string, l Limits, tokens int64) (func(), error)
}

// Limits of the limits.
const (
	// Lease is how long the tokens of a gateway that died count.
	Lease = 10 * time.Second
	// CallTimeout bounds one question.
	CallTimeout = 500 * time.Millisecond
	// MaxHeld bounds the requests in flight of one tenant, whatever its tokens.
	MaxHeld = 1 << 16
	// maxExpired bounds the holds that one call ends.
	maxExpired = 256
	// maxBatch bounds the holds that one call renews.
	maxBatch = 512
)
