package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// history is Temporal's server for one workflow: the tasks that were completed,
// each with the events that it was given and what it recorded, and the events that
// came since. A task is given all of those at once; what comes while it is under
// way waits for the next one. A task that is lost (it was not completed in time)
// recorded nothing, whatever its worker did, and the next one is given its events
// together with what came meanwhile. Only the task under way may be completed, once.
type history struct {
	s    *Sim
	life *life

	mu      sync.Mutex
	begun   bool
	closed  bool
	run     int // of the id
	in      steps.Input
	start   time.Time
	tasks   []task  // completed
	fresh   []event // since
	token   int     // of the last task that was given
	open    *given  // the task under way
	forced  bool    // another task is due, even without an event
	waiting bool    // for a worker that may have it
	sticky  *execution
	last    *gateway // had the last task
	closing bool     // a task wanted to close the run, and an event had come
	timers  map[int]*time.Timer
	doing   map[int]bool // activities
	reader  steps.ReaderAt
	newest  steps.Input              // the newest plan that a completed task took
	plans   map[handoff.Attempt]bool // all such
	all     []*execution
	out     *steps.Outcome
	err     error
	asked   bool        // a cancel is recorded
	read    bool        // the word of a stream's good end is
	reset   atomic.Bool // what runs now is a reset run
	done    context.Context
	end     context.CancelFunc
}

// event is what a task is given: a timer's end or an activity's, by its number, or
// something from outside.
type event struct {
	op      int
	result  result
	signal  string // ended, reader, cancel; empty: of op
	payload any
}

// task is a completed one.
type task struct {
	at     time.Time
	events []event
	marks  []mark // of local activities, in the order in which they ended
	orders []order
}

// given is a task under way.
type given struct {
	token  int
	at     time.Time
	events []event
	before []task // completed before it
	timer  *time.Timer
}

// mark is the record of a local activity.
type mark struct {
	op     int
	at     time.Time // on the workflow's clock
	result result
}

// order is what a task asks of the server, once it is completed: a timer, an
// activity, or the end of either.
type order struct {
	op      int
	step    handoff.Step  // of an activity; empty: a timer
	wait    time.Duration // a timer's
	cancels bool
	in      steps.StepInput
	options workflow.ActivityOptions
}

func (o order) String() string {
	return fmt.Sprintf("%d %s e%d cancels=%v", o.op, o.step, o.in.Request.Plan.Attempt.Epoch, o.cancels)
}

// completion is a worker's word that a task is done.
type completion struct {
	token  int
	marks  []mark
	orders []order
	plan   handoff.Plan // that the workflow goes by now
	route  steps.Route
	end    *end
	force  bool // local activities still run: another task, at once
}

const (
	taskTimeout   = workflows.TaskTimeout
	stickyTimeout = 500 * time.Millisecond // until the task of a worker that is gone may go to any
	pollAgain     = 200 * time.Millisecond
)

func newHistory(s *Sim) *history {
	h := &history{s: s, life: s.lives["h"], plans: map[handoff.Attempt]bool{}}
	h.done, h.end = context.WithCancel(context.Background())
	return h
}

// begin is a workflow's start. Its first task is for the gateway that asks, if the
// answer reaches it. A repeat by the same plan is the same start, without a task.
func (h *history) begin(in steps.Input, g *gateway) (first func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun && h.in.Plan == in.Plan {
		return nil, nil
	}
	if h.begun && (!h.closed || h.out.Sticks()) {
		return nil, handoff.Errorf(handoff.CodeConflict, "another run of this id is there")
	}
	h.begun, h.closed, h.in, h.out, h.err = true, false, in, nil, nil
	h.run++
	h.tasks, h.fresh, h.timers, h.doing = nil, nil, map[int]*time.Timer{}, map[int]bool{}
	h.forced, h.closing, h.asked, h.read = false, false, false, false
	h.start, h.reader = time.Now(), steps.ReaderAt{Reader: in.Plan.Reader, Address: in.ReaderAddress}
	h.newest = in
	h.plans[in.Plan.Attempt] = true
	x := h.execution(g)
	t := h.give(x)
	return func() { x.take(t) }, nil
}

// execution is a worker's of the workflow, from what is recorded. Callers hold the lock.
func (h *history) execution(g *gateway) *execution {
	x := newExecution(h, g)
	h.all = append(h.all, x)
	return x
}

// give begins a task. Callers hold the lock.
func (h *history) give(x *execution) *given {
	h.token++
	t := &given{token: h.token, at: time.Now(), events: slices.Clone(h.fresh), before: h.tasks[:len(h.tasks):len(h.tasks)]}
	h.open, h.forced, h.sticky, h.last = t, false, x, x.g
	t.timer = time.AfterFunc(taskTimeout, func() { h.lost(t) })
	return t
}

// lost is a task that was not completed in time: another worker may have the next.
func (h *history) lost(t *given) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open != t || h.done.Err() != nil {
		return
	}
	h.open, h.sticky, h.forced, h.closing = nil, nil, true, false
	h.schedule()
}

// schedule gives the task that is due to a worker: to the one that has the workflow
// in memory while it lives, else to any that asks for tasks. Callers hold the lock.
func (h *history) schedule() {
	if !h.begun || h.closed || h.done.Err() != nil || h.open != nil || h.waiting || len(h.fresh) == 0 && !h.forced {
		return
	}
	x := h.sticky
	if x != nil && x.g.life.dead() {
		h.again(stickyTimeout)
		return
	}
	if x == nil {
		g := h.s.poller(h.last)
		if g == nil {
			h.again(pollAgain)
			return
		}
		if g != h.last {
			h.s.say("h: the task goes to %s", g.life.name)
			h.s.reached("a worker took another's workflow over")
		}
		x = h.execution(g)
	} else if x.isOver() {
		x = h.execution(x.g)
	}
	t := h.give(x)
	go func() {
		_ = h.s.call(h.done, h.life, x.g.life.name, "task", handoff.Attempt{}, func(context.Context) error { x.take(t); return nil })
	}()
}

// again schedules a little later, for whoever is there then. Callers hold the lock.
func (h *history) again(d time.Duration) {
	h.waiting = true
	time.AfterFunc(d, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waiting, h.sticky = false, nil
		h.schedule()
	})
}

// poller is a worker that takes tasks now, another than not if there is one.
func (s *Sim) poller(not *gateway) *gateway {
	for _, name := range []string{"g0", "g1"} {
		if g := s.gateways[name]; g != not && !g.life.dead() && !s.isHeld(name) {
			return g
		}
	}
	if g := s.gateways[not.life.name]; !g.life.dead() && !s.isHeld(g.life.name) {
		return g
	}
	return nil
}

func (s *Sim) isHeld(name string) bool { return s.held[name].After(time.Now()) }

var errNoTask = handoff.Errorf(handoff.CodeClosed, "there is no such workflow task")

// complete takes what a task did, if it is the one under way, and gives the next
// one if there is anything for it. A run is not closed over an event that came
// meanwhile: then the task has failed, and recorded nothing either.
func (h *history) complete(x *execution, c completion) (*given, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.open
	if h.closed || t == nil || t.token != c.token {
		return nil, errNoTask
	}
	t.timer.Stop()
	h.open, h.closing = nil, false
	if c.end != nil && len(h.fresh) > len(t.events) {
		h.s.reached("a run was not closed over an event")
		h.closing, h.sticky, h.forced = true, nil, true
		if h.token%2 == 0 { // either worker may be the quicker one
			h.sticky = h.execution(x.g)
		}
		h.schedule()
		return nil, handoff.Errorf(handoff.CodeConflict, "an event came: the task has failed")
	}
	h.tasks = append(h.tasks, task{t.at, t.events, c.marks, c.orders})
	h.fresh = h.fresh[len(t.events):]
	h.takes(c)
	if c.end != nil {
		h.close(*c.end)
		return nil, nil
	}
	for _, o := range c.orders {
		h.order(o, x.g)
	}
	if c.force || len(h.fresh) > 0 {
		return h.give(x), nil
	}
	return nil, nil
}

// takes notes the plan that history goes by now. Callers hold the lock.
func (h *history) takes(c completion) {
	if c.plan.Attempt.Epoch <= h.newest.Plan.Attempt.Epoch {
		return
	}
	h.newest.Plan, h.newest.Route = c.plan, c.route
	h.plans[c.plan.Attempt] = true
	h.s.planned(c.plan, h.asked)
}

// close is the workflow's end. Callers hold the lock.
func (h *history) close(e end) {
	h.closed, h.out, h.err = true, &e.out, e.err
	for _, t := range h.timers {
		t.Stop()
	}
	h.s.say("w %s: ended %s committed=%v", name(e.out.Attempt), orNone(e.out.Code), e.out.Committed)
}

func orNone(code string) string {
	if code == "" {
		return "none"
	}
	return code
}

// order does what a completed task asks for. Callers hold the lock.
func (h *history) order(o order, g *gateway) {
	run := h.run
	switch {
	case o.cancels && o.step == "":
		if t := h.timers[o.op]; t != nil {
			t.Stop()
		}
		h.fresh = slices.DeleteFunc(h.fresh, func(e event) bool { return e.signal == "" && e.op == o.op })
	case o.cancels:
		delete(h.doing, o.op) // what runs goes on, and is not repeated
	case o.step == "":
		h.timers[o.op] = time.AfterFunc(o.wait, func() { h.ends(run, o.op, result{}) })
	default:
		h.doing[o.op] = true
		go h.perform(run, o, g)
	}
}

// ends makes a timer's end, or an activity's, an event.
func (h *history) ends(run, op int, r result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != run || h.closed || h.done.Err() != nil {
		return
	}
	h.fresh = append(h.fresh, event{op: op, result: r})
	h.schedule()
}

// wanted says whether an activity is to be tried again.
func (h *history) wanted(run, op int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.run == run && !h.closed && h.doing[op]
}

// activityAgain is how soon the server repeats an activity, however short the interval that it was told.
const activityAgain = time.Second

// perform has an activity done by a worker, and again by the options' policy. What a
// worker says too late is not taken.
func (h *history) perform(run int, o order, near *gateway) {
	expires := time.Now().Add(o.options.ScheduleToCloseTimeout)
	for try := 1; ; try++ {
		g := h.s.near(near)
		for ; g == nil && time.Now().Before(expires) && h.wanted(run, o.op); g = h.s.near(near) {
			time.Sleep(pollAgain)
		}
		ends := expires
		if d := o.options.StartToCloseTimeout; d > 0 && time.Now().Add(d).Before(ends) {
			ends = time.Now().Add(d)
		}
		t := &attempt{order: o, ends: ends, got: make(chan result, 1), beat: make(chan struct{}, 1), wanted: func() bool { return h.wanted(run, o.op) }}
		if g != nil {
			go h.send(g, t)
		}
		r, ok := h.await(t)
		if !ok {
			return
		}
		pause, more := backoff(o.options.RetryPolicy, try, r.err, expires.Add(-activityAgain))
		if !more {
			h.ends(run, o.op, r)
			return
		}
		time.Sleep(max(pause, activityAgain))
		if !h.wanted(run, o.op) {
			return
		}
	}
}

// attempt is one try of an activity.
type attempt struct {
	order  order
	ends   time.Time
	got    chan result
	beat   chan struct{}
	wanted func() bool
}

// await waits for a try's end, or until nothing is heard of it any more.
func (h *history) await(t *attempt) (result, bool) {
	for {
		until := time.Until(t.ends)
		if d := t.order.options.HeartbeatTimeout; d > 0 {
			until = min(until, d)
		}
		select {
		case r := <-t.got:
			return r, true
		case <-t.beat:
		case <-time.After(until):
			return result{err: errTooLate}, true
		case <-h.done.Done():
			return result{}, false
		}
	}
}

// near is a worker for an activity, the one that ordered it if it takes any.
func (s *Sim) near(g *gateway) *gateway {
	if now := s.gateways[g.life.name]; !now.life.dead() && !s.isHeld(g.life.name) {
		return now
	}
	return s.poller(g)
}

// send has one try of an activity done: its task is a message, and so is its end,
// which the worker repeats until it was heard.
func (h *history) send(g *gateway, t *attempt) {
	a := t.order.in.Request.Plan.Attempt
	var once sync.Once
	perform := func() {
		ctx, cancel := context.WithDeadline(activityContext(), t.ends)
		defer cancel()
		defer context.AfterFunc(g.life.ctx, cancel)()
		if t.order.options.HeartbeatTimeout > 0 {
			go h.beats(ctx, cancel, g, t)
		}
		r := g.do(ctx, t.order.step, t.order.in)
		for !g.life.dead() && time.Now().Before(t.ends) {
			err := h.s.call(g.life.ctx, g.life, "h", "activity-done", a, func(context.Context) error {
				select {
				case t.got <- r:
				default:
				}
				return nil
			})
			if err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	_ = h.s.call(h.done, h.life, g.life.name, "activity", a, func(context.Context) error {
		once.Do(func() { go perform() })
		return nil
	})
}

// beats tells the server that an activity goes on, and hears so that nobody wants it any more.
func (h *history) beats(ctx context.Context, cancel func(), g *gateway, t *attempt) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		err := h.s.call(ctx, g.life, "h", "activity-beat", t.order.in.Request.Plan.Attempt, func(context.Context) error {
			if !t.wanted() {
				return errNoTask
			}
			select {
			case t.beat <- struct{}{}:
			default:
			}
			return nil
		})
		if handoff.CodeOf(err) == handoff.CodeClosed {
			cancel()
			return
		}
	}
}

// outside makes an event of what a process other than the worker says. While a run
// that was not closed over an event is tried to be closed again, it takes no other.
func (h *history) outside(signal string, payload any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.begun || h.closed:
		return nil
	case h.isClosing() && signal != "cancel":
		return unavailable("the run is closing")
	}
	if e, ok := payload.(steps.Ended); ok && e.Code == "" {
		h.read = true
	}
	h.fresh = append(h.fresh, event{signal: signal, payload: payload})
	h.schedule()
	return nil
}

func (h *history) isClosing() bool { return h.closing && h.open != nil }

func (h *history) ended(e steps.Ended) error { return h.outside("ended", e) }

func (h *history) cancel() error {
	h.mu.Lock()
	was := h.asked
	h.asked = true
	h.mu.Unlock()
	if was {
		return nil
	}
	return h.outside("cancel", nil)
}

// reattach names another reader; adopt is told the newest planned attempt.
func (h *history) reattach(adopt func(steps.Input, handoff.Reader), g *gateway) error {
	h.mu.Lock()
	var err error
	switch {
	case !h.begun:
		err = unavailable("the key is claimed and nothing has begun yet")
	case h.closed && h.out.Sticks():
		err = handoff.Errorf(handoff.CodeGone, "it is over")
	case h.read:
		err = handoff.Errorf(handoff.CodeGone, "it is ending: its stream was read")
	case h.closed:
		err = unavailable("it was refused; the key is being freed")
	case h.isClosing():
		err = unavailable("the run is closing")
	}
	if err != nil {
		h.mu.Unlock()
		return err
	}
	h.reader = steps.ReaderAt{Reader: handoff.Reader{Process: g.life.name, Incarnation: g.life.incarnation, Number: h.reader.Reader.Number + 1}, Address: g.life.name}
	at, in := h.reader, h.newest
	h.fresh = append(h.fresh, event{signal: "reader", payload: at})
	h.schedule()
	h.mu.Unlock()
	adopt(in, at.Reader)
	h.s.reached("another reader was named")
	return nil
}

func (h *history) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.begun || h.closed
}

func (h *history) stop() {
	h.end()
	h.mu.Lock()
	all := h.all
	h.mu.Unlock()
	for _, x := range all {
		x.evict()
	}
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.begun:
		return "never begun"
	case !h.closed:
		return "open"
	}
	return fmt.Sprintf("e%d %s committed=%v", h.out.Attempt.Epoch, orNone(h.out.Code), h.out.Committed)
}
