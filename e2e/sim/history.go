package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// history is the durable side of one workflow: what completed tasks recorded,
// in order, and who may record next. Only one execution's records are taken at
// a time; an execution that was superseded learns so when it tries (rule 2).
type history struct {
	s *Sim

	mu     sync.Mutex
	begun  bool
	closed bool
	in     steps.Input
	start  time.Time
	log    []entry
	reader steps.ReaderAt
	epoch  *steps.Input // newest planned attempt, as far as recorded
	token  int
	seq    int // of the last batch that was taken under token
	now    *execution
	heard  time.Time
	idle   bool
	all    []*execution
	out    *steps.Outcome
	err    error
	asked  bool // a cancel is recorded
	reset  bool // the next execution is a reset run
	done   context.Context
	end    context.CancelFunc
}

// entry is one recorded event: a step's result, or something from outside.
type entry struct {
	call    call
	out     steps.Output
	err     error
	signal  string // reader, ended, cancel
	payload any
}

// call is one execution of a step.
type call struct {
	step  handoff.Step
	epoch handoff.Epoch
	hard  bool
	n     int
}

const taskTimeout = 2 * time.Second

func newHistory(s *Sim) *history {
	h := &history{s: s, idle: true}
	h.done, h.end = context.WithCancel(context.Background())
	go h.watch()
	return h
}

// begin is a workflow's start. A repeat by the same plan is the same start.
func (h *history) begin(in steps.Input, g *gateway) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun && h.in.Plan == in.Plan {
		return nil
	}
	if h.begun && (!h.closed || h.out != nil && h.out.Sticks()) {
		return handoff.Errorf(handoff.CodeConflict, "another run of this id is there")
	}
	h.begun, h.closed, h.in, h.log, h.out, h.err = true, false, in, nil, nil, nil
	h.start, h.reader, h.epoch, h.asked = time.Now(), steps.ReaderAt{Reader: in.Plan.Reader, Address: in.ReaderAddress}, &in, false
	h.assign(g)
	return nil
}

// assign gives the workflow to a worker, from what is recorded. Callers hold the lock.
func (h *history) assign(g *gateway) {
	h.token++
	h.seq = 0
	h.heard, h.idle = time.Now(), false
	h.now = newExecution(h, g, h.token)
	h.all = append(h.all, h.now)
	go h.now.run()
}

// watch gives the workflow of a silent worker to another one.
func (h *history) watch() {
	for {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-h.done.Done():
			return
		}
		h.mu.Lock()
		silent := h.begun && !h.closed && time.Since(h.heard) > taskTimeout && (!h.idle || h.now.g.life.dead())
		if silent {
			if g := h.s.poller(h.now.g); g != nil {
				h.s.say("h: the task goes to %s", g.life.name)
				h.s.reached("a worker took another's workflow over")
				h.assign(g)
			}
		}
		h.mu.Unlock()
	}
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

// record takes what an execution did, once, unless it was superseded.
func (h *history) record(x *execution, seq int, es []entry, idle bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.token != h.token || h.closed {
		return handoff.Errorf(handoff.CodeClosed, "this task was given to another worker")
	}
	h.heard, h.idle = time.Now(), idle
	if seq <= h.seq {
		return nil
	}
	h.seq = seq
	h.log = append(h.log, es...)
	for _, e := range es {
		if e.call.step == handoff.StepPlace && e.err == nil && e.out.Plan != nil {
			in := *h.epoch
			in.Plan, in.Route = *e.out.Plan, *e.out.Route
			h.epoch = &in
			h.s.planned(in.Plan, h.asked)
		}
	}
	return nil
}

// close is the workflow's end, recorded with all that led to it.
func (h *history) close(x *execution, seq int, es []entry, out steps.Outcome, err error) error {
	if e := h.record(x, seq, es, true); e != nil {
		return e
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.out, h.err = true, &out, err
	h.s.say("w %s: ended %s committed=%v", name(out.Attempt), orNone(out.Code), out.Committed)
	return nil
}

func orNone(code string) string {
	if code == "" {
		return "none"
	}
	return code
}

// outside records what a process other than the worker says, and tells the worker.
func (h *history) outside(signal string, payload any) {
	h.mu.Lock()
	if !h.begun || h.closed {
		h.mu.Unlock()
		return
	}
	h.log = append(h.log, entry{signal: signal, payload: payload})
	n, x := len(h.log), h.now
	h.heard, h.idle = time.Now(), false
	h.mu.Unlock()
	go x.wake(n)
}

func (h *history) ended(e steps.Ended) { h.outside("ended", e) }

func (h *history) cancel() {
	h.mu.Lock()
	h.asked = true
	h.mu.Unlock()
	h.outside("cancel", nil)
}

// reattach names another reader; adopt is told the newest planned attempt.
func (h *history) reattach(adopt func(steps.Input, handoff.Reader), g *gateway) error {
	h.mu.Lock()
	switch {
	case !h.begun:
		h.mu.Unlock()
		return unavailable("the key is claimed and nothing has begun yet")
	case h.closed && h.out.Sticks():
		h.mu.Unlock()
		return handoff.Errorf(handoff.CodeGone, "it is over")
	case slices.ContainsFunc(h.log, func(e entry) bool { x, ok := e.payload.(steps.Ended); return ok && x.Code == "" }):
		h.mu.Unlock()
		return handoff.Errorf(handoff.CodeGone, "it is ending: its stream was read")
	case h.closed:
		h.mu.Unlock()
		return unavailable("it was refused; the key is being freed")
	}
	h.reader = steps.ReaderAt{Reader: handoff.Reader{Process: g.life.name, Incarnation: g.life.incarnation, Number: h.reader.Reader.Number + 1}, Address: g.life.name}
	at, in := h.reader, *h.epoch
	h.mu.Unlock()
	adopt(in, at.Reader)
	h.s.reached("another reader was named")
	h.outside("reader", at)
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
		x.stop()
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
