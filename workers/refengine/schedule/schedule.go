// Package schedule shares an engine's one device among its requests: one
// goroutine that gives each running decode one step and one prefill one chunk,
// round after round (continuous batching).
//
// A Task's work is called from that goroutine alone, never after Done is
// closed: whoever owns the memory that the work touches waits for Done before
// it takes the memory back.
package schedule

import (
	"context"
	"sync"
	"time"
)

// Profile paces the device, so that cheap work takes the time of dear work. A
// zero field does not pace.
type Profile struct {
	PrefillTokensPerSecond float64
	StepInterval           time.Duration // of one decode step of the whole batch
}

func (p Profile) cost(prefillTokens, decodes int) (d time.Duration) {
	if p.PrefillTokensPerSecond > 0 {
		d = time.Duration(float64(prefillTokens) / p.PrefillTokensPerSecond * float64(time.Second))
	}
	if decodes > 0 {
		d += p.StepInterval
	}
	return d
}

// Options of a scheduler.
type Options struct {
	Profile     Profile
	ChunkTokens int // of one round's prefill
	MaxRunning  int // of each kind at once; more wait in order
}

// Scheduler is made by New and works while Run runs.
type Scheduler struct {
	o Options

	mu       sync.Mutex
	prefills queue
	decodes  queue
	rate     float64 // measured prefill tokens a second; 0: none yet
	wake     chan struct{}
	closed   bool
}

// New makes a scheduler without tasks.
func New(o Options) *Scheduler {
	return &Scheduler{o: o, prefills: queue{limit: o.MaxRunning}, decodes: queue{limit: o.MaxRunning}, wake: make(chan struct{}, 1)}
}

// Task is one prefill or one decode.
type Task struct {
	s     *Scheduler
	queue *queue
	work  func(tokens int) (left int, err error)
	left  int // prompt tokens not computed; 1 of a decode
	done  chan struct{}

	// Under s.mu.
	busy    bool // work runs now
	stopped error
	err     error
	over    bool
}

// Prefill runs work for at most ChunkTokens of tokens a round, until all are done
// or one fails.
func (s *Scheduler) Prefill(tokens int, work func(n int) error) *Task {
	t := &Task{s: s, queue: &s.prefills, left: tokens, done: make(chan struct{})}
	t.work = func(n int) (int, error) { return t.left - n, work(n) }
	return s.add(t)
}

// Decode runs step once a round until it says that it is over, or fails.
func (s *Scheduler) Decode(step func() (over bool, err error)) *Task {
	t := &Task{s: s, queue: &s.decodes, left: 1, done: make(chan struct{})}
	t.work = func(int) (int, error) {
		over, err := step()
		if over {
			return 0, err
		}
		return 1, err
	}
	return s.add(t)
}

func (s *Scheduler) add(t *Task) *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		t.end(context.Canceled)
		return t
	}
	t.queue.push(t)
	s.poke()
	return t
}

func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Done is closed once the work will not be called any more.
func (t *Task) Done() <-chan struct{} { return t.done }

// Err is why the task ended, nil when it is complete; to be read after Done.
func (t *Task) Err() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.err
}

// Stop ends the task with a cause, at once unless its work runs this moment.
// The first end counts.
func (t *Task) Stop(cause error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	switch {
	case t.over:
	case t.busy:
		t.stopped = cause
	default:
		t.end(cause)
	}
}

// end is called with the lock held.
func (t *Task) end(err error) {
	t.err, t.over = err, true
	t.queue.remove(t)
	close(t.done)
}

// Load is what the scheduler has to do.
type Load struct {
	Running, Waiting       int
	PrefillTokensPerSecond float64
}

// Load reads it.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	rate := s.rate
	if p := s.o.Profile.PrefillTokensPerSecond; p > 0 {
		rate = p
	}
	return Load{len(s.prefills.running) + len(s.decodes.running), len(s.prefills.waiting) + len(s.decodes.waiting), rate}
}
