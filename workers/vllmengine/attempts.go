package vllmengine

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/answer"
	"github.com/surehand/surehand/workers/refengine/recent"
)

// run is one side of an attempt. Its context ends with why it must stop.
type run struct {
	plan handoff.Plan
	ctx  context.Context
	stop context.CancelCauseFunc

	once    sync.Once
	settled chan struct{} // closed once it is known how it began
	freed   chan struct{} // closed once the engine has its memory back
	free    func()
}

func (r *run) begin(ctx context.Context, plan handoff.Plan) {
	r.plan, r.settled, r.freed = plan, make(chan struct{}), make(chan struct{})
	r.ctx, r.stop = context.WithCancelCause(ctx)
	r.free = sync.OnceFunc(func() { close(r.freed) })
}

// settle says how it began; only the first word counts.
func (r *run) settle(how func()) {
	r.once.Do(func() {
		how()
		close(r.settled)
	})
}

func nothing() {}

// why is the first cause of its end, nil while it goes on.
func (r *run) why() error { return context.Cause(r.ctx) }

// remembered is what a repeat is told of a run that is over: not *unavailable*,
// which would ask for ever.
func (r *run) remembered(otherwise handoff.Code) error {
	if err := r.why(); err != nil && handoff.CodeOf(err) != handoff.CodeUnavailable {
		return err
	}
	return handoff.Errorf(otherwise, "%s is over", r.plan.Attempt)
}

// side is one role of an attempt; an engine can have both of the same attempt.
type side struct {
	attempt handoff.Attempt
	source  bool
}

// finished is the answer of an attempt whose memory is free again.
type finished struct {
	plan  handoff.Plan
	token handoff.Token
	log   *answer.Log
	until time.Time
}

// attempts is every attempt that the front knows of.
type attempts struct {
	mu      sync.Mutex
	closed  error // of new work, once the process is asked to stop
	sources map[handoff.Attempt]*source
	targets map[handoff.Attempt]*target
	over    recent.Map[side, error]              // tombstones (rule 7)
	sealed  recent.Map[handoff.Attempt, *source] // prefills that were read to their end
	answers recent.Map[handoff.Attempt, finished]
	idle    chan struct{} // replaced when the last one leaves
}

func newAttempts() *attempts {
	return &attempts{sources: map[handoff.Attempt]*source{}, targets: map[handoff.Attempt]*target{}, over: recent.New[side, error](maxTombstones),
		sealed: recent.New[handoff.Attempt, *source](maxSealed), answers: recent.New[handoff.Attempt, finished](maxAnswers), idle: make(chan struct{})}
}

func samePlan(known, asked handoff.Plan) error {
	if known != asked {
		return handoff.Errorf(handoff.CodeConflict, "%s has another plan here", asked.Attempt) // rules 1 and 6
	}
	return nil
}

// may refuses an attempt that is over, and new work over the limits. With the lock.
func (a *attempts) may(of side, running int) error {
	if err, ok := a.over.Get(of); ok {
		return err
	}
	if a.closed != nil {
		return a.closed
	}
	if running >= maxAttempts {
		return handoff.Errorf(handoff.CodeCapacity, "%d attempts are here, limit %d", running, maxAttempts)
	}
	return nil
}

// target finds the run of a reservation or makes it; made says which.
func (a *attempts) target(plan handoff.Plan, create func() (*target, error)) (t *target, made bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t = a.targets[plan.Attempt]; t != nil {
		return t, false, samePlan(t.plan, plan)
	}
	if err := a.may(side{plan.Attempt, false}, len(a.targets)); err != nil {
		return nil, false, err
	}
	if t, err = create(); err != nil {
		return nil, false, err
	}
	a.targets[plan.Attempt] = t
	return t, true, nil
}

// source is the same for a prefill. One that was sealed and read is told again.
func (a *attempts) source(plan handoff.Plan, create func() (*source, error)) (s *source, made bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s = a.sources[plan.Attempt]; s == nil {
		s, _ = a.sealed.Get(plan.Attempt)
	}
	if s != nil {
		return s, false, samePlan(s.plan, plan)
	}
	if err := a.may(side{plan.Attempt, true}, len(a.sources)); err != nil {
		return nil, false, err
	}
	if s, err = create(); err != nil {
		return nil, false, err
	}
	a.sources[plan.Attempt] = s
	return s, true, nil
}

// forgetTarget drops a run that is over. One that took nothing (keep is false)
// may be asked for again; another leaves a tombstone, and its answer for a while.
func (a *attempts) forgetTarget(t *target, keep bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.targets, t.plan.Attempt)
	if keep {
		a.over.Put(side{t.plan.Attempt, false}, t.remembered(handoff.CodeAborted))
		a.answers.Put(t.plan.Attempt, finished{t.plan, t.token, t.log, time.Now().Add(AnswerKept)})
	}
	a.left()
}

func (a *attempts) forgetSource(s *source, keep bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sources, s.plan.Attempt)
	if keep {
		why := s.remembered(handoff.CodeClosed)
		a.over.Put(side{s.plan.Attempt, true}, why)
		if s.sealed != nil && handoff.CodeOf(why) == handoff.CodeClosed {
			a.sealed.Put(s.plan.Attempt, s)
		}
	}
	a.left()
}

func (a *attempts) left() {
	if len(a.sources)+len(a.targets) == 0 {
		close(a.idle)
		a.idle = make(chan struct{})
	}
}

// cancel finds what runs for an attempt. What is not known leaves a tombstone.
func (a *attempts) cancel(plan handoff.Plan, why error) (s *source, t *target, known bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, t = a.sources[plan.Attempt], a.targets[plan.Attempt]
	if s != nil {
		err = samePlan(s.plan, plan)
	}
	if t != nil && err == nil {
		err = samePlan(t.plan, plan)
	}
	if err != nil {
		return nil, nil, true, err
	}
	known = s != nil || t != nil
	for _, one := range []struct {
		of    side
		lives bool
	}{{side{plan.Attempt, true}, s != nil}, {side{plan.Attempt, false}, t != nil}} {
		if _, over := a.over.Get(one.of); over {
			known = true
		} else if !one.lives {
			a.over.Put(one.of, why)
		}
	}
	a.sealed.Forget(plan.Attempt) // what is cancelled is told to nobody
	return s, t, known, nil
}

// answer finds the completion of an attempt, running or finished.
func (a *attempts) answer(plan handoff.Plan) (t *target, f finished, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t = a.targets[plan.Attempt]; t != nil {
		return t, f, samePlan(t.plan, plan)
	}
	if f, ok := a.answers.Get(plan.Attempt); ok && time.Now().Before(f.until) {
		return nil, f, samePlan(f.plan, plan)
	}
	if err, ok := a.over.Get(side{plan.Attempt, false}); ok && handoff.CodeOf(err) != handoff.CodeAborted {
		return nil, f, err
	}
	return nil, f, handoff.Errorf(handoff.CodeGone, "no answer of %s is held here", plan.Attempt)
}

func (a *attempts) findTarget(k handoff.Attempt) *target {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.targets[k]
}

func (a *attempts) findSource(k handoff.Attempt) *source {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sources[k]
}

// all is every run: for the engine's end.
func (a *attempts) all() (out []*run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.targets {
		out = append(out, &t.run)
	}
	for _, s := range a.sources {
		out = append(out, &s.run)
	}
	return out
}

// refuseNew makes every attempt that is not known yet be refused.
func (a *attempts) refuseNew(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = err
}

func (a *attempts) count() (sources, targets int, empty <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sources), len(a.targets), a.idle
}
