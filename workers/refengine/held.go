package refengine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// held is one side of an attempt at this engine: who may touch its memory, and
// until when. One goroutine owns it.
type held struct {
	plan handoff.Plan
	seq  *paged.Sequence // nil until allocated; the owner's

	stop    *latch // compute for it no more
	gone    *latch // its transferd says that it is over
	drained *latch // its transferd says that nobody touches its memory

	mu    sync.Mutex
	cause error // why it was stopped
}

func newHeld(plan handoff.Plan) held {
	return held{plan: plan, stop: newLatch(), gone: newLatch(), drained: newLatch()}
}

// end stops it; the first cause counts, but one that tells takes the place of
// *unavailable*, which does not. The cause stands before stop is set.
func (h *held) end(cause error) {
	h.mu.Lock()
	h.cause = better(h.cause, cause)
	h.mu.Unlock()
	h.stop.set()
}

func better(first, later error) error {
	if first == nil || handoff.CodeOf(first) == handoff.CodeUnavailable {
		return later
	}
	return first
}

// remembered is what a repeat is told once the memory is free: not *unavailable*,
// which would ask for ever.
func (h *held) remembered() error {
	if err := h.why(); handoff.CodeOf(err) != handoff.CodeUnavailable {
		return err
	}
	return handoff.Errorf(handoff.CodeClosed, "%s is over", h.plan.Attempt)
}

// settle waits a moment for the word of a transferd that was lost amid an
// operation: when it is back it says what became of the attempt.
func (e *Engine) settle(h *held) {
	wait := time.NewTimer(settleWait)
	defer wait.Stop()
	select {
	case <-h.gone.done():
	case <-wait.C:
	case <-e.ctx.Done():
	}
}

func (h *held) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// allocate takes blocks and a slot for so many tokens, all or nothing, the
// shared blocks first; those belong to it from then on.
func (e *Engine) allocate(shared []paged.Block, tokens int) (*paged.Sequence, error) {
	own, err := e.arena.Allocate(e.form.layout.BlocksFor(tokens) - len(shared))
	if err != nil {
		return nil, full(err, e.arena.Release(shared))
	}
	q, err := e.arena.Open(shared, own)
	if err != nil {
		return nil, full(err, e.arena.Release(shared), e.arena.Release(own))
	}
	return q, nil
}

// full types the refusal of an arena whose books are in order.
func full(refused error, undo ...error) error {
	for _, err := range undo {
		if err != nil {
			return handoff.Errorf(handoff.CodeInternal, "%s, and the undo: %s", refused, err)
		}
	}
	return handoff.Errorf(handoff.CodeCapacity, "%s", refused)
}

// takeBack waits until nobody can touch the memory any more, tells its transferd
// and releases it. It says whether it did: a transferd that refuses, or the
// engine's end, leaves the memory as it is.
func (e *Engine) takeBack(h *held, source bool) bool {
	select {
	case <-h.drained.done():
	case <-e.ctx.Done():
		return false
	}
	err := insist(e.ctx, nil, func(ctx context.Context) error { return e.daemon.Freed(ctx, h.plan.Attempt, source) })
	if err != nil {
		if e.ctx.Err() == nil {
			e.c.Log.Error("memory is kept: its transferd refused to let it go", "attempt", h.plan.Attempt.String(), "source", source, "error", err)
		}
		return false
	}
	e.release(h.seq)
	return true
}

// release gives memory back that nobody else can touch. Books that do not agree
// are a fault of this engine, after which no block of it can be trusted.
func (e *Engine) release(q *paged.Sequence) {
	if err := errors.Join(e.compute.Forget(q), q.Close()); err != nil {
		e.fail(handoff.Errorf(handoff.CodeInternal, "release: %s", err))
	}
}
