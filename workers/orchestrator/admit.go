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
// runs for a request that cannot be made durable in time. One whose turn would
// come too late is refused at once, and told when to come again.
type starts struct {
	room           *semaphore.Weighted
	max            int
	waiting, under atomic.Int64
	each           atomic.Int64 // nanoseconds that a start has taken of late
}

// Busy is a request that is refused for want of a turn. After is when what was
// ahead of it will be done, as far as can be told.
type Busy struct {
	Cause *handoff.Error
	After time.Duration
}

func (b *Busy) Error() string { return b.Cause.Error() }

// Unwrap gives the typed refusal.
func (b *Busy) Unwrap() error { return b.Cause }

// admitWait is how long a request may wait for its turn; less when its deadline
// is near.
const admitWait = 5 * time.Second

func newStarts(max int) *starts {
	return &starts{room: semaphore.NewWeighted(int64(max)), max: max}
}

// admit waits for a turn; the function gives it back and must be called once.
// *Busy, which is CodeCapacity, when no turn came in time, or would.
func (s *starts) admit(ctx context.Context, deadline time.Duration) (func(), error) {
	if s.room.TryAcquire(1) {
		return s.turn(), nil
	}
	most := min(admitWait, deadline/2)
	ahead := s.waiting.Add(1)
	defer s.waiting.Add(-1)
	if s.needs(ahead) > most {
		return nil, s.busy(ahead)
	}
	wait, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := s.room.Acquire(wait, 1)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, handoff.Errorf(handoff.CodeCancelled, "the client left")
	case err != nil:
		return nil, s.busy(s.waiting.Load())
	}
	return s.turn(), nil
}

func (s *starts) turn() (over func()) {
	s.under.Add(1)
	began := time.Now()
	return func() {
		s.took(time.Since(began))
		s.under.Add(-1)
		s.room.Release(1)
	}
}

// A start that was quick is believed sooner than a slow one, and one slow start,
// as the first of a process is, refuses nobody: who is refused may have been served.
const (
	rises = 8
	falls = 2
)

func (s *starts) took(d time.Duration) {
	for {
		known := s.each.Load()
		next := known + (int64(d)-known)/rises
		if int64(d) < known {
			next = known + (int64(d)-known)/falls
		}
		if s.each.CompareAndSwap(known, next) {
			return
		}
	}
}

// needs is the time until so many have had their turn.
func (s *starts) needs(waiting int64) time.Duration {
	return time.Duration(waiting * s.each.Load() / int64(s.max))
}

func (s *starts) busy(waiting int64) error {
	return &Busy{handoff.Errorf(handoff.CodeCapacity, "%d requests are being made durable and %d wait for it; no turn comes in time", s.max, waiting), s.needs(waiting)}
}

// Admission tells what waits here before it is durable.
func (o *Orchestrator) Admission() *operatev1.Admission {
	s := o.starts
	return &operatev1.Admission{Waiting: uint32(max(0, s.waiting.Load())), Starting: uint32(max(0, s.under.Load())), StartingMost: uint32(s.max), Gateway: o.cfg.Process}
}
