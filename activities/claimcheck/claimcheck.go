// Package claimcheck keeps what clients wrote, for a while, where a worker that
// takes a handoff over can find it: histories hold a prompt's digest and nothing
// of its text. Adapters: redischeck, and memcheck, its twin in memory.
//
// The store is no truth: a body that is not there costs the recovery of its
// handoff on another worker, which then ends with CodeGone. A body lies at
// (tenant, handoff), at rest sealed with AES-GCM under a key that every gateway
// and worker of the fleet is given; a body moved to another name does not open.
package claimcheck

import (
	"context"
	"encoding/json"
	"time"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Store is a claim check: activities.Bodies for those who take over, Put and
// Drop for the gateway. Every method may be repeated.
type Store interface {
	activities.Bodies
	// Put keeps a body until its handoff must be over.
	Put(ctx context.Context, in steps.Input, b activities.Body) error
	// Drop forgets it sooner.
	Drop(ctx context.Context, tenant string, h handoff.HandoffID) error
}

// Limits (S17).
const (
	// MaxBytes bounds one body at rest: the longest prompt in JSON, and its stops.
	MaxBytes = 4 << 20
	// Slack is how long a body outlives its handoff's budgets.
	Slack = time.Minute
	// TTLMax bounds how long a body is kept.
	TTLMax = 24 * time.Hour
)

// TTL is how long the body of a handoff is kept.
func TTL(in steps.Input) time.Duration { return min(in.Deadline+in.Decode+Slack, TTLMax) }

// Marshal is a body as stores keep it; CodeTooLarge over the limit.
func Marshal(b activities.Body) ([]byte, error) {
	if n := len(b.Prompt); n > MaxBytes { // before anything is allocated for it
		return nil, handoff.Errorf(handoff.CodeTooLarge, "a body of %d bytes, limit %d", n, MaxBytes)
	}
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInternal, "a body cannot be written")
	}
	if len(raw) > MaxBytes {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "a body of %d bytes, limit %d", len(raw), MaxBytes)
	}
	return raw, nil
}

// Unmarshal reads what Marshal wrote. Its refusal quotes nothing.
func Unmarshal(raw []byte) (b activities.Body, err error) {
	if json.Unmarshal(raw, &b) != nil {
		return activities.Body{}, handoff.Errorf(handoff.CodeGone, "the body kept is malformed")
	}
	return b, nil
}

// Validate checks what names a body.
func Validate(tenant string, h handoff.HandoffID) error {
	if err := handoff.ValidateID("tenant", tenant); err != nil {
		return err
	}
	return handoff.ValidateID("handoff", string(h))
}

// Gone is the refusal for a body that is not there.
func Gone(h handoff.HandoffID) error {
	return handoff.Errorf(handoff.CodeGone, "no body of %s is kept", h)
}
