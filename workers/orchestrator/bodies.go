package orchestrator

import (
	"context"
	"sync"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Check is the claim check: where a body waits, for a while, for a worker that
// takes a handoff over. It is written off the critical path.
type Check interface {
	activities.Bodies
	Put(ctx context.Context, in steps.Input, b activities.Body) error
	// Drop forgets a body that nobody will need any more.
	Drop(ctx context.Context, tenant string, h handoff.HandoffID) error
}

// bodyOf is what of a request histories must not hold.
func bodyOf(r Request) activities.Body {
	return activities.Body{Prompt: r.Prompt, Stop: r.Sampling.Stop, Salt: r.Salt}
}

// bodies keeps what clients wrote in memory while their handoffs live here.
type bodies struct {
	mu    sync.Mutex
	live  map[handoff.HandoffID]activities.Body
	check activities.Bodies
	limit int
}

func newBodies(check activities.Bodies, limit int) *bodies {
	return &bodies{live: map[handoff.HandoffID]activities.Body{}, check: check, limit: limit}
}

func (b *bodies) keep(in steps.Input, body activities.Body) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.live) >= b.limit {
		return handoff.Errorf(handoff.CodeCapacity, "%d bodies are held, limit %d", len(b.live), b.limit)
	}
	b.live[in.Plan.Attempt.Handoff] = body
	return nil
}

func (b *bodies) drop(h handoff.HandoffID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, h)
}

// Body finds a body in memory, else by claim check. Without one a body dies with
// its gateway: nothing can be done under this epoch, but the client may bring the
// body again to another gateway, for the next (rule 5c, clause 8).
func (b *bodies) Body(ctx context.Context, tenant string, h handoff.HandoffID) (activities.Body, error) {
	b.mu.Lock()
	body, ok := b.live[h]
	b.mu.Unlock()
	if ok {
		return body, nil
	}
	if b.check == nil {
		return activities.Body{}, handoff.Errorf(handoff.CodeStaleIncarnation, "the body of %s died with its gateway, and there is no claim check store", h)
	}
	return b.check.Body(ctx, tenant, h)
}
