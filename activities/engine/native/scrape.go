package native

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
)

// scrape is one look at an engine's metrics, shared by all who asked before it began.
type scrape struct {
	began bool
	done  chan struct{}
	out   vllm.Sample
	err   error
}

// fresh gives a sample that was asked for after this call: it tells of
// everything that the engine had counted by then. Callers share scrapes, at most
// one is under way and one waits.
func (s *seat) fresh(ctx context.Context) (vllm.Sample, error) {
	if s.f.life.Err() != nil {
		return vllm.Sample{}, handoff.Errorf(handoff.CodeUnavailable, "this process is shutting down")
	}
	s.mu.Lock()
	next := s.scrape
	if next == nil || next.began {
		before := next
		next = &scrape{done: make(chan struct{})}
		s.scrape = next
		s.f.wg.Go(func() { s.run(next, before) })
	}
	s.mu.Unlock()
	select {
	case <-next.done:
		return next.out, next.err
	case <-ctx.Done():
		return vllm.Sample{}, handoff.Errorf(handoff.CodeUnavailable, "%s %s: no answer in time", s.side(), s.id)
	}
}

func (s *seat) run(now, before *scrape) {
	if before != nil {
		<-before.done
	}
	s.mu.Lock()
	now.began = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.f.life, askTimeout)
	defer cancel()
	now.out, now.err = s.server.Scrape(ctx, s.side())
	s.mu.Lock()
	if now.err == nil {
		s.sample, s.misses = now.out, 0
	}
	if s.scrape == now {
		s.scrape = nil
	}
	s.mu.Unlock()
	close(now.done)
	if now.err != nil && s.f.life.Err() == nil {
		s.missed(now.err)
	}
}

// recent gives a sample that is not older than age.
func (s *seat) recent(ctx context.Context, age time.Duration) (vllm.Sample, error) {
	if sample, _, _ := s.known(); !sample.Asked.IsZero() && time.Since(sample.Asked) < age {
		return sample, nil
	}
	return s.fresh(ctx)
}

// sameLife refuses samples of two lives of one process. A start time that is not
// told proves nothing either way: the counters and the lease have to.
func sameLife(before, after vllm.Sample) error {
	b, ok1 := before.Value(vllm.MetricStart)
	a, ok2 := after.Value(vllm.MetricStart)
	if ok1 && ok2 && a != b {
		return handoff.Errorf(handoff.CodeNotValidated, "P is another process than the one that computed")
	}
	return nil
}
