package sim

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// execution is the real workflow at one worker, over what history recorded: the
// recorded steps answer at once, the others are really run, and become history
// only when their task is completed.
type execution struct {
	h     *history
	s     *Sim
	g     *gateway
	token int
	in    steps.Input
	env   *testsuite.TestWorkflowEnvironment
	hold  chan struct{} // an activity that keeps the test clock on the wall's
	ready chan struct{}
	ended chan end

	mu       sync.Mutex
	past     []entry // recorded before this execution
	done     int     // of past, that were replayed
	turn     chan struct{}
	counts   map[call]int
	buffer   []entry
	running  int
	over     bool
	told     int // entries of the log that are known here
	recorder chan struct{}
	batch    []entry // on its way into history, under number seq
	seq      int
	flushing chan struct{} // one token: who may send a batch
}

type stepFunc = func(context.Context, steps.StepInput) (steps.Output, error)

func newExecution(h *history, g *gateway, token int) *execution {
	x := &execution{h: h, s: h.s, g: g, token: token, in: h.in, past: append([]entry(nil), h.log...), told: len(h.log), hold: make(chan struct{}), ready: make(chan struct{}), ended: make(chan end, 1),
		turn: make(chan struct{}), counts: map[call]int{}, recorder: make(chan struct{}, 1), flushing: make(chan struct{}, 1)}
	return x
}

const holdName = "hold"

// run executes the workflow to its end, or until another worker has it.
func (x *execution) run() {
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	x.env = suite.NewTestWorkflowEnvironment()
	x.env.SetTestTimeout(24 * time.Hour)
	x.env.RegisterWorkflowWithOptions(x.workflow, workflow.RegisterOptions{Name: steps.Workflow})
	x.env.RegisterActivityWithOptions(func(context.Context) error { <-x.hold; return nil }, activity.RegisterOptions{Name: holdName})
	x.g.steps.Register(registry{x})
	go x.replay()
	go x.records()
	go x.closes()
	x.env.ExecuteWorkflow(steps.Workflow, x.in)
	x.stop()
}

// workflow is the real one beside an activity that never ends: while one runs,
// the test environment fires timers by the wall's clock, which is virtual here.
func (x *execution) workflow(ctx workflow.Context, in steps.Input) (steps.Outcome, error) {
	apart, _ := workflow.NewDisconnectedContext(ctx)
	workflow.ExecuteActivity(workflow.WithActivityOptions(apart, workflow.ActivityOptions{StartToCloseTimeout: 24 * time.Hour}), holdName)
	close(x.ready)
	out, err := workflows.Handoff(ctx, in)
	x.ended <- end{out, err}
	// What the workflow no longer waits for still repeats itself until its budget.
	return out, workflow.Sleep(apart, in.Deadline+workflows.SettleBudget)
}

// end is what the workflow returned.
type end struct {
	out steps.Outcome
	err error
}

// closes makes the workflow's end history.
func (x *execution) closes() {
	var e end
	select {
	case e = <-x.ended:
	case <-x.hold:
		return
	}
	if e.err != nil && e.out.Code == "" {
		x.s.violate("the workflow ended untyped: %v", e.err)
	}
	for !x.isOver() && !x.g.life.dead() {
		x.flushing <- struct{}{}
		seq, es := x.next()
		err := x.s.call(x.g.life.ctx, x.g.life, "h", "close", handoff.Attempt{}, func(context.Context) error { return x.h.close(x, seq, es, e.out, e.err) })
		<-x.flushing
		if handoff.CodeOf(err) != handoff.CodeUnavailable {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	x.supersede()
}

// registry puts every step of the worker through the execution.
type registry struct{ x *execution }

func (r registry) RegisterActivity(a any) { r.x.env.RegisterActivity(a) }
func (r registry) RegisterDynamicActivity(a any, o activity.DynamicRegisterOptions) {
	r.x.env.RegisterDynamicActivity(a, o)
}

func (r registry) RegisterActivityWithOptions(a any, o activity.RegisterOptions) {
	inner, step := a.(stepFunc), handoff.Step(o.Name)
	r.x.env.RegisterActivityWithOptions(func(ctx context.Context, in steps.StepInput) (steps.Output, error) {
		return r.x.step(ctx, step, in, inner)
	}, o)
}

var errSuperseded = temporal.NewNonRetryableApplicationError("superseded", "internal", nil)

// step answers from what is recorded, or does it.
func (x *execution) step(ctx context.Context, step handoff.Step, in steps.StepInput, inner stepFunc) (steps.Output, error) {
	c := call{step: step, epoch: in.Request.Plan.Attempt.Epoch, hard: in.Hard}
	x.mu.Lock()
	c.n = x.counts[call{step: c.step, epoch: c.epoch, hard: c.hard}]
	x.counts[call{step: c.step, epoch: c.epoch, hard: c.hard}]++
	x.mu.Unlock()
	if e, ok := x.recorded(c); ok {
		return e.out, e.err
	}
	if x.isOver() {
		return steps.Output{}, errSuperseded
	}
	in.OriginalRunID = activity.GetInfo(ctx).WorkflowExecution.RunID
	if x.h.reset {
		in.OriginalRunID = "the run before"
	}
	x.mu.Lock()
	x.running++
	x.mu.Unlock()
	if step == handoff.StepPlace && !x.flush(false) { // the task that schedules it is completed first
		x.stopped(nil)
		return steps.Output{}, errSuperseded
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.g.life.ctx, cancel)()
	out, err := inner(ctx, in)
	x.stopped(&entry{call: c, out: out, err: err})
	if x.g.life.dead() {
		x.supersede()
		return steps.Output{}, errSuperseded
	}
	if step == handoff.StepPlace && !x.flush(false) { // rule 2: history first
		return steps.Output{}, errSuperseded
	}
	return out, err
}

func (x *execution) stopped(e *entry) {
	x.mu.Lock()
	x.running--
	if e != nil {
		x.buffer = append(x.buffer, *e)
	}
	x.mu.Unlock()
	x.poke()
}

func (x *execution) poke() {
	select {
	case x.recorder <- struct{}{}:
	default:
	}
}

// records completes workflow tasks: when no step runs, and now and then.
func (x *execution) records() {
	for {
		select {
		case <-x.recorder:
		case <-time.After(taskTimeout * 4 / 5):
		case <-x.hold:
			return
		case <-x.g.life.ctx.Done():
			x.supersede()
			return
		}
		time.Sleep(10 * time.Microsecond) // the workflow goes on with what it heard first
		x.mu.Lock()
		idle := x.running == 0
		x.mu.Unlock()
		if !x.flush(idle) {
			return
		}
	}
}

// next is the batch that history has to have next: the one that nobody answered
// yet, or what was done since. Callers hold flushing.
func (x *execution) next() (int, []entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.batch == nil {
		x.seq++
		x.batch, x.buffer = append([]entry{}, x.buffer...), nil
	}
	return x.seq, x.batch
}

// flush makes what is buffered history; false when another worker has the task.
func (x *execution) flush(idle bool) bool {
	x.flushing <- struct{}{}
	defer func() { <-x.flushing }()
	for !x.isOver() {
		seq, es := x.next()
		err := x.s.call(x.g.life.ctx, x.g.life, "h", "record", handoff.Attempt{}, func(context.Context) error { return x.h.record(x, seq, es, idle) })
		switch {
		case err == nil:
			x.mu.Lock()
			x.batch = nil
			more := len(x.buffer) > 0
			x.mu.Unlock()
			if more {
				continue
			}
			return true
		case handoff.CodeOf(err) != handoff.CodeUnavailable || x.g.life.dead():
			if !x.h.isOver() {
				x.s.reached("a late completion of a task was refused")
			}
			x.supersede()
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}
