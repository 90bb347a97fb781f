package orchestrator

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/surehand/surehand/contracts/handoff"
)

// starts bounds the starts under way. At saturation the start itself is what
// queues; a request then waits here, before its head start, so that no prefill
// runs for a request that cannot be made durable in time.
type starts struct {
	room *semaphore.Weighted
	max  int
}

// admitWait is how long a request may wait for its turn; less when its deadline
// is near.
const admitWait = 5 * time.Second

func newStarts(max int) *starts {
	return &starts{semaphore.NewWeighted(int64(max)), max}
}

// admit waits for a turn; the function gives it back and must be called once.
// CodeCapacity when the turn did not come in time.
func (s *starts) admit(ctx context.Context, deadline time.Duration) (func(), error) {
	wait, cancel := context.WithTimeout(ctx, min(admitWait, deadline/2))
	defer cancel()
	switch err := s.room.Acquire(wait, 1); {
	case err != nil && ctx.Err() != nil:
		return nil, handoff.Errorf(handoff.CodeCancelled, "the client left")
	case err != nil:
		return nil, handoff.Errorf(handoff.CodeCapacity, "%d requests are being made durable; no turn came in time", s.max)
	}
	return func() { s.room.Release(1) }, nil
}
