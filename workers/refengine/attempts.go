package refengine

import (
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/answer"
	"github.com/surehand/surehand/workers/refengine/recent"
)

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

// sealed is a finished prefill that a repeat is told of.
type sealed struct {
	source *source
	until  time.Time
}

// attempts is every attempt that the engine knows of.
type attempts struct {
	mu      sync.Mutex
	refuse  *handoff.Error // new work, while not nil
	sources map[handoff.Attempt]*source
	targets map[handoff.Attempt]*target
	over    recent.Map[side, handoff.Code]      // tombstones (rule 7): as what an attempt is over
	sealed  recent.Map[handoff.Attempt, sealed] // of those, runs whose state was read to its end
	answers recent.Map[handoff.Attempt, finished]
	idle    chan struct{} // replaced when the last one leaves
}

func newAttempts() *attempts {
	return &attempts{sources: map[handoff.Attempt]*source{}, targets: map[handoff.Attempt]*target{},
		over:   recent.New[side, handoff.Code](maxTombstones),
		sealed: recent.New[handoff.Attempt, sealed](maxSealed), answers: recent.New[handoff.Attempt, finished](maxAnswers), idle: make(chan struct{})}
}

// refuseNew makes every attempt that is not known yet be refused; nil ends that,
// unless the engine is stopping.
func (a *attempts) refuseNew(err *handoff.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != stopping {
		a.refuse = err
	}
}

// source finds the run of a plan's prefill or makes it; made says which.
func (a *attempts) source(plan handoff.Plan, make func() (*source, error)) (s *source, made bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s = a.sources[plan.Attempt]
	if s == nil {
		f, _ := a.sealed.Get(plan.Attempt)
		s = f.source
	}
	if err := a.check(plan, side{plan.Attempt, true}, s != nil, func() handoff.Plan { return s.plan }); err != nil || s != nil {
		return s, false, err
	}
	if s, err = make(); err != nil {
		return nil, false, err
	}
	a.sources[plan.Attempt] = s
	return s, true, nil
}

// target is the same for a reservation.
func (a *attempts) target(plan handoff.Plan, make func() (*target, error)) (t *target, made bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t = a.targets[plan.Attempt]
	if err := a.check(plan, side{plan.Attempt, false}, t != nil, func() handoff.Plan { return t.plan }); err != nil || t != nil {
		return t, false, err
	}
	if t, err = make(); err != nil {
		return nil, false, err
	}
	a.targets[plan.Attempt] = t
	return t, true, nil
}

// check refuses another plan for a known attempt, and an attempt that is over.
func (a *attempts) check(plan handoff.Plan, of side, known bool, its func() handoff.Plan) error {
	if known {
		return samePlan(its(), plan)
	}
	if code, ok := a.over.Get(of); ok {
		return isOver(plan.Attempt, code)
	}
	if a.refuse != nil {
		return a.refuse
	}
	return nil
}

// isOver is what a tombstone tells. It keeps no text: an engine remembers very many.
func isOver(a handoff.Attempt, code handoff.Code) error {
	return handoff.Errorf(code, "%s is over", a)
}

func samePlan(known, asked handoff.Plan) error {
	if known != asked {
		return handoff.Errorf(handoff.CodeConflict, "%s has another plan here", asked.Attempt) // rules 1 and 6
	}
	return nil
}

// forgetSource drops a source that holds no memory any more. One that was open
// once leaves a tombstone. One that was sealed and came to a plain end, as it
// does when D has read it, is told again to those who ask: D may hold its state.
func (a *attempts) forgetSource(s *source, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sources, s.plan.Attempt)
	if why != nil {
		a.over.Put(side{s.plan.Attempt, true}, handoff.CodeOf(why))
	}
	now := time.Now()
	a.sealed.Drop(func(f sealed) bool { return f.until.Before(now) })
	if told := s.run.told(); told != nil && handoff.CodeOf(why) == handoff.CodeClosed {
		a.sealed.Put(s.plan.Attempt, sealed{&source{held: newHeld(s.plan), run: *told}, now.Add(sealedKept)})
	}
	a.left()
}

// forgetTarget is the same for a target, whose answer is kept for a while.
func (a *attempts) forgetTarget(t *target, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.targets, t.plan.Attempt)
	if why != nil {
		a.over.Put(side{t.plan.Attempt, false}, handoff.CodeOf(why))
		now := time.Now()
		a.answers.Drop(func(f finished) bool { return f.until.Before(now) })
		a.answers.Put(t.plan.Attempt, finished{t.plan, t.token, t.log, now.Add(AnswerKept)})
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
	if s = a.sources[plan.Attempt]; s != nil {
		known, err = true, samePlan(s.plan, plan)
	} else if _, ok := a.over.Get(side{plan.Attempt, true}); ok {
		known = true
		a.sealed.Forget(plan.Attempt)
	} else {
		a.over.Put(side{plan.Attempt, true}, handoff.CodeOf(why))
	}
	if t = a.targets[plan.Attempt]; t != nil && err == nil {
		known, err = true, samePlan(t.plan, plan)
	} else if _, ok := a.over.Get(side{plan.Attempt, false}); ok {
		known = true
	} else if t == nil {
		a.over.Put(side{plan.Attempt, false}, handoff.CodeOf(why))
	}
	return s, t, known, err
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
	if code, ok := a.over.Get(side{plan.Attempt, false}); ok && code != handoff.CodeAborted {
		return nil, f, isOver(plan.Attempt, code)
	}
	return nil, f, handoff.Errorf(handoff.CodeGone, "no answer of %s is held here", plan.Attempt)
}

func (a *attempts) findSource(k handoff.Attempt) *source {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sources[k]
}

func (a *attempts) findTarget(k handoff.Attempt) *target {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.targets[k]
}

// count gives how many hold memory; empty is closed when none does any more.
func (a *attempts) count() (sources, targets int, empty <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sources), len(a.targets), a.idle
}
