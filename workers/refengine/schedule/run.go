package schedule

import (
	"context"
	"slices"
	"time"
)

// rateWeight of the newest chunk in the measured rate.
const rateWeight = 0.2

// unit is a task's share of one round.
type unit struct {
	task   *Task
	tokens int
}

// Run works until ctx ends, then ends every task with ctx's cause.
func (s *Scheduler) Run(ctx context.Context) {
	defer s.close(ctx)
	pace := time.NewTimer(0)
	defer pace.Stop()
	<-pace.C
	var free time.Time // when the device has done what it was given
	for ctx.Err() == nil {
		round, cost := s.round()
		if len(round) == 0 {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if free = free.Add(cost); free.After(now) {
			pace.Reset(free.Sub(now))
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
		}
		for _, u := range round {
			s.do(u)
		}
	}
}

// round picks the first prefill and every running decode.
func (s *Scheduler) round() ([]unit, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var round []unit
	prefillTokens := 0
	for _, t := range s.decodes.running {
		round = append(round, unit{t, 1})
	}
	decodes := len(round)
	if t := s.prefills.next(); t != nil {
		prefillTokens = min(t.left, s.o.ChunkTokens)
		round = append(round, unit{t, prefillTokens})
	}
	return round, s.o.Profile.cost(prefillTokens, decodes)
}

// do runs a unit, unless its task was stopped since the round began.
func (s *Scheduler) do(u unit) {
	t := u.task
	s.mu.Lock()
	if t.over {
		s.mu.Unlock()
		return
	}
	t.busy = true
	s.mu.Unlock()
	began := time.Now()
	left, err := t.work(u.tokens)
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.busy, t.left = false, left
	if t.queue == &s.prefills && took > 0 && err == nil {
		s.measure(float64(u.tokens) / took.Seconds())
	}
	switch {
	case err != nil:
		t.end(err)
	case left <= 0:
		t.end(nil)
	case t.stopped != nil:
		t.end(t.stopped)
	}
}

func (s *Scheduler) measure(rate float64) {
	if s.rate == 0 {
		s.rate = rate
	}
	s.rate += rateWeight * (rate - s.rate)
}

func (s *Scheduler) close(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, q := range []*queue{&s.prefills, &s.decodes} {
		for _, t := range slices.Concat(q.running, q.waiting) {
			t.end(context.Cause(ctx))
		}
	}
}

// queue is the tasks of one kind, in the order in which they came.
type queue struct {
	limit            int
	running, waiting []*Task
}

func (q *queue) push(t *Task) {
	if len(q.running) < q.limit {
		q.running = append(q.running, t)
		return
	}
	q.waiting = append(q.waiting, t)
}

// next gives the running task whose turn it is and sends it to the end.
func (q *queue) next() *Task {
	if len(q.running) == 0 {
		return nil
	}
	t := q.running[0]
	copy(q.running, q.running[1:])
	q.running[len(q.running)-1] = t
	return t
}

func (q *queue) remove(t *Task) {
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return
	}
	i := slices.Index(q.running, t)
	if i < 0 {
		return
	}
	q.running = slices.Delete(q.running, i, i+1)
	if len(q.waiting) > 0 {
		q.running = append(q.running, q.waiting[0])
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}
