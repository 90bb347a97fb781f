package activities

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Attempts joins the head start of a gateway and the activities of its worker:
// whoever asks first for a step of an attempt runs it, everybody else waits for
// the same run. It is one process's memory and holds no truth: a step asked for
// in another process is simply asked again under the same operation id.
//
// Only reserve, prefill and transfer keep their answer, because commit checks
// what they led to. Commit and the undo steps are asked anew each time: the first
// answer is not the present (rule 8).
type Attempts struct {
	mu   sync.Mutex
	live map[handoff.Attempt]*attempt
	max  int
	wg   sync.WaitGroup
	over bool
}

// NewAttempts makes a table of at most limit attempts (S17).
func NewAttempts(limit int) *Attempts {
	return &Attempts{live: map[handoff.Attempt]*attempt{}, max: limit}
}

type attempt struct {
	ctx     context.Context // of what runs for the attempt, not of who waits
	cancel  context.CancelCauseFunc
	began   time.Time
	plan    handoff.Plan
	route   steps.Route
	calls   map[handoff.Step]*call
	opened  chan struct{} // closed once P's source is open
	source  opened
	last    time.Time // of the last use, for the sweep
	kept    bool      // a stream of this process reads it
	left    bool      // that stream gave it up, or is over: renewed no more
	running int       // calls under way
}

type opened struct {
	capability []byte
	address    string
	tokens     uint32
}

type call struct {
	done chan struct{}
	out  steps.Output
	err  error
}

// hold makes the attempt known here and gives its record.
func (t *Attempts) hold(p handoff.Plan, r steps.Route) (*attempt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.live[p.Attempt]; a != nil {
		if a.plan != p {
			return nil, handoff.Errorf(handoff.CodeConflict, "this attempt has another plan") // rule 1
		}
		a.last = time.Now()
		return a, nil
	}
	if t.over {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "this worker is stopping")
	}
	if len(t.live) >= t.max {
		return nil, handoff.Errorf(handoff.CodeCapacity, "%d attempts are under way, limit %d", len(t.live), t.max)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	now := time.Now()
	a := &attempt{ctx: ctx, cancel: cancel, began: now, last: now, plan: p, route: r,
		calls: map[handoff.Step]*call{}, opened: make(chan struct{})}
	t.live[p.Attempt] = a
	return a, nil
}

// do runs fn once for step of a, however many ask; each waits under its own
// ctx. What runs ends with the attempt, or after budget: a peer that stopped
// must not hold a worker for ever.
func (t *Attempts) do(ctx context.Context, a *attempt, step handoff.Step, budget time.Duration, fn func(context.Context) (steps.Output, error)) (steps.Output, error) {
	t.mu.Lock()
	c := a.calls[step]
	if c == nil {
		if t.over {
			t.mu.Unlock()
			return steps.Output{}, handoff.Errorf(handoff.CodeUnavailable, "this worker is stopping")
		}
		c = &call{done: make(chan struct{})}
		a.calls[step] = c
		a.running++
		t.wg.Go(func() { t.run(a, step, c, budget, fn) })
	}
	t.mu.Unlock()
	select {
	case <-c.done:
		return c.out, c.err
	case <-ctx.Done():
		return steps.Output{}, handoff.Errorf(handoff.CodeUnavailable, "%s: the asker stopped waiting", step)
	}
}

func (t *Attempts) run(a *attempt, step handoff.Step, c *call, budget time.Duration, fn func(context.Context) (steps.Output, error)) {
	ctx, cancel := context.WithTimeout(a.ctx, budget)
	defer cancel()
	start := time.Since(a.began).Microseconds()
	c.out, c.err = fn(ctx)
	c.out.StartMicros, c.out.EndMicros = start, time.Since(a.began).Microseconds()
	if cause := context.Cause(a.ctx); c.err != nil && cause != nil {
		c.err = cause // why the attempt was stopped says more than "cancelled"
	}
	t.mu.Lock()
	a.running--
	a.last = time.Now()
	if c.err != nil && handoff.CodeOf(c.err).Advice() == handoff.RetrySame && a.calls[step] == c {
		delete(a.calls, step) // unknown is not an answer: the next asker asks again
	}
	t.mu.Unlock()
	close(c.done)
}

// open publishes P's capability to whoever pulls.
func (t *Attempts) open(a *attempt, o opened) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-a.opened:
	default:
		a.source = o
		close(a.opened)
	}
}

// Opened is closed once P's source of the attempt is open here; nil, which is
// never closed, when the attempt can't be held.
func (t *Attempts) Opened(p handoff.Plan, r steps.Route) <-chan struct{} {
	a, err := t.hold(p, r)
	if err != nil {
		return nil
	}
	return a.opened
}

// Stop ends what runs for the attempt in this process, with its cause.
func (t *Attempts) Stop(a handoff.Attempt, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.live[a]; x != nil {
		x.cancel(cause)
	}
}

// Forget drops the attempt from this process's memory.
func (t *Attempts) Forget(a handoff.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.live[a]; x != nil {
		x.cancel(handoff.Errorf(handoff.CodeClosed, "the attempt is over"))
		delete(t.live, a)
	}
}

// Took is how long a step of an attempt took that ran here; 0: none has ended here.
func (t *Attempts) Took(a handoff.Attempt, step handoff.Step) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.live[a]; x != nil && x.calls[step] != nil {
		select {
		case <-x.calls[step].done:
			out := x.calls[step].out
			return time.Duration(out.EndMicros-out.StartMicros) * time.Microsecond
		default:
		}
	}
	return 0
}

// Len is how many attempts are under way here.
func (t *Attempts) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.live)
}

// Sweep forgets attempts that nobody used for idle: their worker lost the
// workflow to another process, whose attempts they are now.
func (t *Attempts) Sweep(idle time.Duration) {
	t.mu.Lock()
	var old []handoff.Attempt
	for k, a := range t.live {
		if !a.kept && a.running == 0 && time.Since(a.last) > idle {
			old = append(old, k)
		}
	}
	t.mu.Unlock()
	for _, k := range old {
		t.Forget(k)
	}
}

// seat is what a lease renewal needs of an attempt.
type seat struct {
	plan  handoff.Plan
	route steps.Route
}

// Keep says that a stream of this process reads the attempt, so that its leases
// are renewed while nothing else happens to it. The attempt's steps may run in
// another process: it is made known here.
func (t *Attempts) Keep(p handoff.Plan, r steps.Route) error {
	a, err := t.hold(p, r)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a.kept, a.left = true, false
	return nil
}

// Unkeep takes Keep back: the reader gave the attempt up, so it renews it no more.
func (t *Attempts) Unkeep(a handoff.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.live[a]; x != nil {
		x.kept, x.left = false, true
	}
}

// Close stops everything that runs here and waits for its end.
func (t *Attempts) Close() {
	t.mu.Lock()
	t.over = true
	for _, a := range t.live {
		a.cancel(handoff.Errorf(handoff.CodeUnavailable, "this worker is stopping"))
	}
	t.mu.Unlock()
	t.wg.Wait()
}

// held lists the attempts whose leases this process renews: those that a stream
// reads, that something runs for, or that were used within idle. What a lost or
// terminated workflow left behind is not among them, and its leases end.
func (t *Attempts) held(idle time.Duration) []seat {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]seat, 0, len(t.live))
	for _, a := range t.live {
		if a.kept || !a.left && a.ctx.Err() == nil && (a.running > 0 || time.Since(a.last) < idle) {
			out = append(out, seat{a.plan, a.route})
		}
	}
	return out
}

// clock tells the time of an attempt's time line, in microseconds: since it
// began here, or, where it is not known here, since now.
func (t *Attempts) clock(a handoff.Attempt) func() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	if x := t.live[a]; x != nil {
		began = x.began
	}
	return func() int64 { return time.Since(began).Microseconds() }
}

func (t *Attempts) since(a *attempt) int64 { return time.Since(a.began).Microseconds() }
