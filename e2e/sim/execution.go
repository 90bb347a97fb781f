package sim

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// execution is the real workflow in one worker's memory. It goes through the tasks
// that are completed, as they are recorded, and then through those that it is given:
// all events of one at once, then the local activities that the workflow begins,
// each one's end by itself; the task is completed when none runs any more.
type execution struct {
	h     *history
	s     *Sim
	g     *gateway
	in    steps.Input
	start time.Time
	env   *testsuite.TestWorkflowEnvironment
	hold  chan struct{} // closed when this is forgotten
	ready chan struct{} // closed when the workflow waits for its first task
	tasks chan *given
	ends  chan ended

	mu       sync.Mutex
	token    int // of the last task that came
	over     bool
	due      []func() // for the workflow's thread
	fresh    []*op    // local activities that are not begun
	local    int      // those that did not end
	orders   []order  // of this task
	returned *end
	plan     handoff.Plan
	route    steps.Route

	// Of the workflow's thread.
	started bool
	now     time.Time
	last    int // number of the last op
	ops     map[int]*op
	state   func() (steps.State, error)
	signals map[string]workflow.Channel
	cancel  workflow.CancelFunc
}

// op is a timer or an activity that the workflow waits for.
type op struct {
	id     int
	step   handoff.Step // empty: a timer
	local  bool
	in     steps.StepInput
	budget workflow.LocalActivityOptions
	ctx    workflow.Context
	then   workflow.Settable

	stop     context.CancelFunc // of a local one, once it runs
	stopped  bool
	canceled bool
}

// result is how one ended, as it crosses Temporal.
type result struct {
	out any // *commonpb.Payloads
	err error
}

// ended is a local activity's end.
type ended struct {
	op     int
	result result
}

// end is what the workflow returned.
type end struct {
	out steps.Outcome
	err error
}

type stepFunc = func(context.Context, steps.StepInput) (steps.Output, error)

func newExecution(h *history, g *gateway) *execution {
	return &execution{h: h, s: h.s, g: g, in: h.in, start: h.start, hold: make(chan struct{}), ready: make(chan struct{}), tasks: make(chan *given, 1), ends: make(chan ended),
		ops: map[int]*op{}, signals: map[string]workflow.Channel{}}
}

// take is a task's arrival at the worker.
func (x *execution) take(t *given) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.g.life.dead() || t.token <= x.token { // or it came twice
		return
	}
	if x.token == 0 {
		go x.run()
		go x.work(t.before)
	}
	x.token = t.token
	x.tasks <- t
}

// run executes the workflow to its end, or until it is forgotten.
func (x *execution) run() {
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(24 * time.Hour)
	env.SetWorkflowRunTimeout(0) // or its timer fires as soon as nothing runs
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&wishes{x: x}}})
	env.RegisterWorkflowWithOptions(x.workflow, workflow.RegisterOptions{Name: steps.Workflow})
	x.env = env
	env.ExecuteWorkflow(steps.Workflow, x.in)
}

// workflow is the real one, from its first task on.
func (x *execution) workflow(ctx workflow.Context, in steps.Input) (steps.Outcome, error) {
	apart, _ := workflow.NewDisconnectedContext(ctx)
	ctx, x.cancel = workflow.WithCancel(ctx)
	for _, name := range []string{steps.SignalEnded, steps.SignalReattach} {
		x.signals[name] = workflow.NewBufferedChannel(apart, math.MaxInt32)
	}
	workflow.Go(apart, x.hear)
	close(x.ready)
	if err := workflow.Await(apart, func() bool { return x.started }); err != nil {
		return steps.Outcome{}, err
	}
	out, err := workflows.Handoff(ctx, in)
	x.mu.Lock()
	if !x.over {
		x.returned = &end{out, err}
	}
	x.mu.Unlock()
	return out, err
}

// hear does in the workflow's thread what is due there, and ends what was cancelled.
func (x *execution) hear(ctx workflow.Context) {
	isDue := func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.due) > 0 {
			return true
		}
		for _, o := range x.ops {
			if !o.canceled && o.ctx.Err() != nil {
				return true
			}
		}
		return false
	}
	for workflow.Await(ctx, isDue) == nil {
		x.mu.Lock()
		due := x.due
		x.due = nil
		x.mu.Unlock()
		for _, do := range due {
			do()
		}
		x.cancels()
	}
}

// inside runs something in the workflow's thread and returns when the workflow has
// gone on with it as far as it goes.
func (x *execution) inside(do func()) {
	x.mu.Lock()
	x.due = append(x.due, do)
	x.mu.Unlock()
	x.env.SignalWorkflow("due", nil)
	time.Sleep(10 * time.Microsecond) // which passes when nothing runs any more
}

// work goes through the tasks, those before and those that come.
func (x *execution) work(before []task) {
	defer x.evict()
	select {
	case <-x.ready:
	case <-x.hold:
		return
	}
	for _, t := range before {
		if !x.replay(t) {
			return
		}
	}
	for {
		select {
		case t := <-x.tasks:
			for t != nil {
				t = x.perform(t)
			}
		case <-x.hold:
			return
		case <-x.g.life.ctx.Done():
			return
		}
		if x.isOver() {
			return
		}
	}
}

// replay goes through a completed task: the workflow must ask for the same again (S18).
func (x *execution) replay(t task) bool {
	x.deliver(t.at, t.events)
	for _, m := range t.marks {
		if awaited := x.mark(m); x.isOver() {
			return false
		} else if !awaited {
			x.s.violate("S18: a local activity, number %d, was recorded, and the workflow did not ask for it again", m.op)
			return false
		}
	}
	x.mu.Lock()
	orders := x.orders
	x.orders = nil
	over := x.over
	x.mu.Unlock()
	if !over && !slices.EqualFunc(orders, t.orders, func(a, b order) bool { return a.String() == b.String() }) {
		x.s.violate("S18: a task asked for %v, and again for %v", t.orders, orders)
		return false
	}
	return !over
}

// deliver gives the workflow all events of a task.
func (x *execution) deliver(at time.Time, events []event) {
	x.inside(func() {
		x.now, x.started = at, true
		for _, e := range events {
			switch e.signal {
			case "":
				x.settle(e.op, e.result)
			case "ended":
				x.signals[steps.SignalEnded].SendAsync(e.payload)
			case "reader":
				x.signals[steps.SignalReattach].SendAsync(e.payload)
			case "cancel":
				x.cancel()
			}
		}
	})
}

// mark gives it a local activity's end; false when it does not wait for that.
func (x *execution) mark(m mark) bool {
	var was atomic.Bool
	x.inside(func() {
		x.now = m.at
		was.Store(x.settle(m.op, m.result))
	})
	return was.Load()
}

// settle ends what the workflow waits for.
func (x *execution) settle(id int, r result) bool {
	o := x.ops[id]
	if o == nil {
		return false // cancelled meanwhile
	}
	x.mu.Lock()
	delete(x.ops, id)
	if o.local {
		x.local--
		x.fresh = slices.DeleteFunc(x.fresh, func(f *op) bool { return f == o })
	}
	x.mu.Unlock()
	o.then.Set(r.out, r.err)
	return true
}

// cancels ends what the workflow cancelled: a timer and an activity at once, a
// local activity when its worker says so.
func (x *execution) cancels() {
	for id := range x.last + 1 {
		o := x.ops[id]
		if o == nil || o.canceled || o.ctx.Err() == nil {
			continue
		}
		x.mu.Lock()
		o.canceled = true
		if o.local {
			if o.stopped = true; o.stop != nil {
				o.stop()
			}
		} else if i := slices.IndexFunc(x.orders, func(r order) bool { return r.op == id }); i >= 0 {
			x.orders = slices.Delete(x.orders, i, i+1) // nobody has heard of it
		} else {
			x.orders = append(x.orders, order{op: id, step: o.step, in: o.in, cancels: true})
		}
		x.mu.Unlock()
		if !o.local {
			x.settle(id, result{err: temporal.NewCanceledError()})
		}
	}
}

// perform does a task and answers the next one, if there is one at once.
func (x *execution) perform(t *given) *given {
	began := time.Now()
	beat := time.NewTimer(taskTimeout * 4 / 5)
	defer beat.Stop()
	x.deliver(t.at, t.events)
	var marks []mark
	for {
		x.mu.Lock()
		for _, o := range x.fresh {
			go x.locally(o)
		}
		x.fresh = nil
		idle := x.local == 0 || x.returned != nil
		x.mu.Unlock()
		if idle {
			return x.complete(t, marks, false)
		}
		select {
		case e := <-x.ends:
			m := mark{e.op, t.at.Add(time.Since(began)), e.result}
			marks = append(marks, m)
			x.mark(m)
		case <-beat.C:
			return x.complete(t, marks, true)
		case <-x.hold:
			return nil
		case <-x.g.life.ctx.Done():
			return nil
		}
	}
}

// locally does a local activity, and again by its options' policy. It goes on when
// the worker has lost the workflow, but is not repeated then.
func (x *execution) locally(o *op) {
	expires := time.Now().Add(o.budget.ScheduleToCloseTimeout)
	ctx, cancel := context.WithDeadline(activityContext(), expires)
	defer cancel()
	defer context.AfterFunc(x.g.life.ctx, cancel)()
	x.mu.Lock()
	if o.stop = cancel; o.stopped {
		cancel()
	}
	x.mu.Unlock()
	for try := 1; ; try++ {
		r := result{err: temporal.NewCanceledError()}
		if ctx.Err() != context.Canceled {
			r = x.g.do(ctx, o.step, o.in)
		}
		pause, more := backoff(o.budget.RetryPolicy, try, r.err, expires)
		if !more {
			select {
			case x.ends <- ended{o.id, r}:
			case <-x.hold:
			}
			return
		}
		time.Sleep(pause)
		if x.isOver() {
			return
		}
	}
}

// complete tells the server what a task did, until it answers.
func (x *execution) complete(t *given, marks []mark, force bool) *given {
	x.mu.Lock()
	c := completion{token: t.token, marks: marks, orders: x.orders, plan: x.plan, route: x.route, end: x.returned, force: force}
	x.orders = nil
	x.mu.Unlock()
	point := "record"
	if c.end != nil {
		point = "close"
		if c.end.err != nil && c.end.out.Code == "" {
			x.s.violate("the workflow ended untyped: %v", c.end.err)
		}
	}
	for !x.g.life.dead() {
		next, err := fetch(x.g.life.ctx, x.s, x.g.life, "h", point, handoff.Attempt{}, func(context.Context) (*given, error) { return x.h.complete(x, c) })
		switch {
		case err == nil && c.end == nil:
			if next != nil {
				x.mu.Lock()
				x.token = next.token
				x.mu.Unlock()
			}
			return next
		case err == nil:
			x.evict()
			return nil
		case handoff.CodeOf(err) != handoff.CodeUnavailable:
			if handoff.CodeOf(err) == handoff.CodeClosed && !x.h.isOver() {
				x.s.reached("a late completion of a task was refused")
			}
			x.evict()
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func (x *execution) isOver() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over
}

// evict forgets the workflow. What its local activities do goes on.
func (x *execution) evict() {
	x.mu.Lock()
	was := x.over
	x.over = true
	x.mu.Unlock()
	if was {
		return
	}
	close(x.hold)
	select {
	case <-x.ready:
		x.env.SignalWorkflow("due", nil) // which then ends
	default:
	}
}

var errTooLate = temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil)

// do performs a step at this worker. Who waits for it is told at once when its time
// has passed or it was cancelled, while it goes on.
func (g *gateway) do(ctx context.Context, step handoff.Step, in steps.StepInput) result {
	got := make(chan result, 1)
	go func() {
		out, err := g.table[step](ctx, in)
		got <- crossing(out, err)
	}()
	select {
	case r := <-got:
		return r
	case <-ctx.Done():
	}
	select {
	case r := <-got:
		return r
	default:
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return result{err: errTooLate}
	}
	return result{err: temporal.NewCanceledError()}
}

// crossing is what Temporal makes of an activity's answer on its way to the workflow.
func crossing(out steps.Output, err error) result {
	if err != nil {
		c := temporal.GetDefaultFailureConverter()
		return result{err: c.FailureToError(c.ErrorToFailure(err))}
	}
	p, err := converter.GetDefaultDataConverter().ToPayloads(out)
	return result{p, err}
}

// backoff is the pause before the next try, as both the SDK and the server choose it.
func backoff(p *temporal.RetryPolicy, try int, err error, expires time.Time) (pause time.Duration, more bool) {
	var app *temporal.ApplicationError
	switch {
	case err == nil, temporal.IsCanceledError(err), errors.As(err, &app) && app.NonRetryable(), p.MaximumAttempts > 0 && try >= int(p.MaximumAttempts):
		return 0, false
	}
	pause = time.Duration(min(float64(p.MaximumInterval), float64(p.InitialInterval)*math.Pow(p.BackoffCoefficient, float64(try-1))))
	return pause, !time.Now().Add(pause).After(expires)
}

// activityContext is what a local activity finds in its context.
var activityContext = sync.OnceValue(func() (out context.Context) {
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	note := func(ctx context.Context) error {
		out = context.WithoutCancel(ctx)
		return nil
	}
	if _, err := env.ExecuteLocalActivity(note); err != nil {
		panic(err)
	}
	return out
})

// runID is the workflow's, as its activities see it.
func runID() string { return activity.GetInfo(activityContext()).WorkflowExecution.RunID }

// table collects the steps by name, as they are registered.
type table map[handoff.Step]stepFunc

func (t table) RegisterActivity(any) {}
func (t table) RegisterDynamicActivity(any, activity.DynamicRegisterOptions) {
}

func (t table) RegisterActivityWithOptions(a any, o activity.RegisterOptions) {
	t[handoff.Step(o.Name)] = a.(stepFunc)
}
