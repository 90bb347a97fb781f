// Package redisbodies is the claim check on Redis: where the part of a request
// that no history may hold waits, for as long as another worker could still
// need it to run the prefill again.
//
// Losing it costs a typed refusal (gone) and nothing else. What is stored is
// the client's text: the store needs the protection that the text needs.
package redisbodies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

const (
	// MaxBodyBytes bounds what is stored of one request.
	MaxBodyBytes = 16 << 20
	// CallTimeout bounds every call.
	CallTimeout = 500 * time.Millisecond
	// margin is how long after the deadline of the first token a late epoch
	// may still ask.
	margin = 30 * time.Second
)

// Bodies keeps bodies under a deadline. Safe for concurrent use.
type Bodies struct{ client redis.UniversalClient }

// New refuses a client that retries by itself: a second write could outlive the
// first one's deadline.
func New(client *redis.Client) (*Bodies, error) {
	if n := client.Options().MaxRetries; n > 0 {
		return nil, handoff.Errorf(handoff.CodeInvalid, "client retries %d times by itself", n)
	}
	return &Bodies{client: client}, nil
}

func key(tenant string, h handoff.HandoffID) string {
	return "surehand:{handoff:" + string(h) + "}:body:" + tenant
}

// Put stores a body; a repeat stores the same one again, under a new deadline.
func (b *Bodies) Put(ctx context.Context, in steps.Input, body activities.Body) error {
	text, err := json.Marshal(body)
	if err != nil {
		return handoff.Errorf(handoff.CodeInternal, "encode a body: %s", err)
	}
	if len(text) > MaxBodyBytes {
		return handoff.Errorf(handoff.CodeTooLarge, "the body has %d bytes, limit %d", len(text), MaxBodyBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	kept := cmp.Or(in.Deadline, time.Minute) + margin
	if err := b.client.Set(ctx, key(in.Tenant, in.Plan.Attempt.Handoff), text, kept).Err(); err != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "claim check: %s", err)
	}
	return nil
}

// Body finds a body: CodeGone when it never came or its deadline passed.
func (b *Bodies) Body(ctx context.Context, tenant string, h handoff.HandoffID) (activities.Body, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	var body activities.Body
	text, err := b.client.Get(ctx, key(tenant, h)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return body, handoff.Errorf(handoff.CodeGone, "the body of %s is no longer held", h)
	case err != nil:
		return body, handoff.Errorf(handoff.CodeUnavailable, "claim check: %s", err)
	}
	if err := json.Unmarshal(text, &body); err != nil {
		// The parser's text may quote the body.
		return activities.Body{}, handoff.Errorf(handoff.CodeGone, "the stored body of %s cannot be read", h)
	}
	return body, nil
}

// Drop forgets a body; a repeat, or a body that is gone, is fine.
func (b *Bodies) Drop(ctx context.Context, tenant string, h handoff.HandoffID) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if err := b.client.Del(ctx, key(tenant, h)).Err(); err != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "claim check: %s", err)
	}
	return nil
}
