package orchestrator

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

// starts bounds the starts under way. At saturation the start itself is what
// queues; a request then waits here, before its head start, so that no prefill
// runs for a request that cannot be made durable in time.
type starts struct {
	room           *semaphore.Weighted
	max            int
	waiting, under atomic.Int64
}

// admitWait is how long a request may wait for its turn; less when its deadline
// is near.
const admitWait = 5 * time.Second

func newStarts(max int) *starts {
	return &starts{room: semaphore.NewWeighted(int64(max)), max: max}
}

// admit waits for a turn; the function gives it back and must be called once.
// CodeCapacity when the turn did not come in time.
func (s *starts) admit(ctx context.Context, deadline time.Duration) (func(), error) {
	wait, cancel := context.WithTimeout(ctx, min(admitWait, deadline/2))
	defer cancel()
	s.waiting.Add(1)
	err := s.room.Acquire(wait, 1)
	s.waiting.Add(-1)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, handoff.Errorf(handoff.CodeCancelled, "the client left")
	case err != nil:
		return nil, handoff.Errorf(handoff.CodeCapacity, "%d requests are being made durable; no turn came in time", s.max)
	}
	s.under.Add(1)
	return func() { s.under.Add(-1); s.room.Release(1) }, nil
}

// Admission tells what waits here before it is durable.
func (o *Orchestrator) Admission() *operatev1.Admission {
	s := o.starts
	return &operatev1.Admission{Waiting: uint32(max(0, s.waiting.Load())), Starting: uint32(max(0, s.under.Load())), StartingMost: uint32(s.max), Gateway: o.cfg.Process}
}
