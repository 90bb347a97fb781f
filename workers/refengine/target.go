package refengine

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/workers/refengine/answer"
	"github.com/surehand/surehand/workers/refengine/compute"
)

// room is what a reservation asks for.
type room struct {
	tokens int // of the prompt
	growth int // of the answer, at most
	stops  []string
	drawn  int // tokens of the answer before this attempt, among tokens
	lease  time.Duration
	trace  string // traceparent of who asked first; empty: none
}

// target is the state of one attempt at D and its answer.
type target struct {
	held
	room      room
	log       *answer.Log
	committed *latch
	reserved  *latch
	token     handoff.Token // once reserved; zero when refused
}

// reserve takes room for a whole request and opens its target, or joins who does.
//
// Idempotent under the attempt: one allocation, one generation, one token.
func (e *Engine) reserve(ctx context.Context, plan handoff.Plan, r room) (handoff.Token, int, error) {
	t, made, err := e.attempts.target(plan, func() (*target, error) {
		t := &target{held: newHeld(plan), room: r, log: answer.NewLog(), committed: newLatch(), reserved: newLatch()}
		return t, e.stale(plan.D)
	})
	if err != nil {
		return handoff.Token{}, 0, err
	}
	if made {
		e.owners.Go(func() { e.ownTarget(t) })
	}
	select {
	case <-t.reserved.done():
	case <-ctx.Done():
		return handoff.Token{}, 0, handoff.Errorf(handoff.CodeUnavailable, "reserve goes on: %s", ctx.Err())
	}
	return t.token, e.form.layout.BlocksFor(t.room.tokens + t.room.growth), t.why()
}

// ownTarget is the goroutine that owns a target's memory.
func (e *Engine) ownTarget(t *target) {
	q, err := e.allocate(nil, t.room.tokens+t.room.growth)
	if err != nil {
		e.refuseTarget(t, err)
		return
	}
	t.seq = q
	token, err := e.openTarget(t)
	if err != nil && handoff.CodeOf(err) != handoff.CodeUnavailable { // refused: nobody ever held it
		e.release(q)
		e.refuseTarget(t, err)
		return
	}
	if err != nil {
		e.settle(&t.held)
		e.endTarget(t, err)
	}
	t.token = token
	t.reserved.set()
	e.decode(t)
	if err := e.finishTarget(t); err != nil && e.ctx.Err() == nil {
		e.c.Log.Error("finish target", "attempt", t.plan.Attempt.String(), "error", err)
	}
	if e.takeBack(&t.held, false) {
		e.attempts.forgetTarget(t, t.remembered())
	}
}

// refuseTarget ends one that took nothing, so that it may be asked again.
func (e *Engine) refuseTarget(t *target, err error) {
	e.endTarget(t, err)
	e.attempts.forgetTarget(t, nil)
	t.reserved.set()
}

// endTarget ends the answer in the same instant.
func (e *Engine) endTarget(t *target, cause error) {
	t.end(cause)
	t.log.Break(t.why())
}

// remembered is what a repeat of the reservation will be told.
func (t *target) remembered() error {
	if t.why() == nil {
		return handoff.Errorf(handoff.CodeAborted, "the decode of %s is over", t.plan.Attempt)
	}
	return t.held.remembered()
}

func (e *Engine) openTarget(t *target) (handoff.Token, error) {
	shape := e.form.shape(t.room.tokens)
	return e.daemon.OpenTarget(e.ctx, client.TargetSpec{Plan: t.plan, Shape: shape, Offsets: offsets(e.form.ranges(shape, t.seq)),
		FlagSlot: uint32(t.seq.Slot()), Lease: t.room.lease})
}

// decode waits for the commit and produces the answer, until it is complete,
// breaks or is stopped.
func (e *Engine) decode(t *target) {
	select {
	case <-t.committed.done():
	case <-t.stop.done():
		return
	case <-e.ctx.Done():
		e.endTarget(t, context.Cause(e.ctx))
		return
	}
	_, span := tracing.Start(tracing.With(e.ctx, t.room.trace), tracing.SpanDecode, t.plan.Attempt)
	d := decoder{run: e.decodeOf(t), cut: answer.NewCutter(t.room.stops), limit: uint32(t.room.growth),
		log: t.log, counts: answer.Counts{Direct: uint32(t.room.tokens)}}
	slot := uint32(t.seq.Slot())
	task := e.device.Decode(func() (bool, error) {
		if !e.daemon.IsVisible(slot, t.plan.Attempt) { // the event says committed, the flag page must as well
			return false, handoff.Errorf(handoff.CodeAborted, "%s is not visible", t.plan.Attempt)
		}
		return d.step()
	})
	select {
	case <-task.Done():
	case <-t.stop.done():
		task.Stop(t.why())
		<-task.Done()
	}
	err := task.Err()
	span.Number(tracing.KeyTokens, uint64(d.counts.Completion))
	span.End(err)
	if err != nil {
		e.endTarget(t, err)
	}
}

// decodeOf begins behind what another attempt drew; the reservation has refused
// that where it cannot be.
func (e *Engine) decodeOf(t *target) compute.Decode {
	if on, ok := e.compute.(compute.Resumes); ok {
		return on.DecodeOn(t.seq, t.plan.Attempt, t.room.tokens, t.room.drawn)
	}
	return e.compute.Decode(t.seq, t.plan.Attempt, t.room.tokens)
}

// finishTarget tells the daemon, if it was not the daemon that told us.
func (e *Engine) finishTarget(t *target) error {
	if t.gone.isSet() {
		return nil
	}
	err := insist(e.ctx, t.gone.done(), func(ctx context.Context) error { return e.daemon.FinishTarget(ctx, t.plan.Attempt) })
	switch handoff.CodeOf(err) {
	case handoff.CodeClosed, handoff.CodeAborted: // a repeat, or the daemon was first
		return nil
	case handoff.CodeNotReady: // another life of the daemon, whose events tell
		return nil
	}
	return err
}

// decoder turns steps into the pieces of a log.
type decoder struct {
	run    compute.Decode
	cut    *answer.Cutter
	limit  uint32 // tokens of the answer
	log    *answer.Log
	counts answer.Counts
}

// step is one token.
func (d *decoder) step() (over bool, err error) {
	text, end, err := d.run.Step()
	if err != nil {
		return false, err
	}
	if end {
		d.log.Finish(d.cut.Flush(), answer.FinishStop, d.counts)
		return true, nil
	}
	d.counts.Completion++
	p, stopped := d.cut.Push(text)
	switch {
	case stopped:
		d.log.Finish(p, answer.FinishStop, d.counts)
		return true, nil
	case d.counts.Completion == d.limit:
		rest := d.cut.Flush()
		d.log.Finish(answer.Piece{Text: append(p.Text, rest.Text...), Tokens: p.Tokens + rest.Tokens}, answer.FinishLength, d.counts)
		return true, nil
	}
	d.log.Append(p)
	return false, nil
}
