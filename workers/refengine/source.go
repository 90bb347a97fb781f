package refengine

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/paged"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

// prompt is what a prefill computes.
type prompt struct {
	tokens   []int
	sampling compute.Sampling
	salt     paged.Salt
	tenant   handoff.Digest // of the salt; zero without one
	lease    time.Duration
	trace    string // traceparent of who asked first; empty: none
}

// source is the state of one attempt at P, from its allocation to its release.
type source struct {
	held
	prompt prompt
	shape  handoff.Shape
	ranges []paged.Range // of the pieces
	cached int           // leading tokens that a prefix hit brought
	run    progress
}

// prefill starts the run of a plan, or joins it.
//
// Idempotent under the attempt: one run, one grant, however often it is asked.
func (e *Engine) prefill(plan handoff.Plan, p prompt) (*source, error) {
	s, made, err := e.attempts.source(plan, func() (*source, error) {
		return &source{held: newHeld(plan), prompt: p, run: newProgress()}, e.stale(plan.P)
	})
	if made {
		e.owners.Go(func() { e.ownSource(s) })
	}
	return s, err
}

// ownSource is the goroutine that owns a source's memory.
func (e *Engine) ownSource(s *source) {
	ctx, span := tracing.Start(tracing.With(e.ctx, s.prompt.trace), tracing.SpanPrefill, s.plan.Attempt)
	if err := e.allocateSource(s); err != nil {
		span.End(err)
		e.endSource(s, err)
		e.attempts.forgetSource(s, nil) // nothing was taken: it may be asked again
		return
	}
	err := e.openSource(s, tracing.Text(ctx))
	if err != nil && handoff.CodeOf(err) != handoff.CodeUnavailable { // refused: nobody ever held it
		span.End(err)
		e.endSource(s, err)
		e.release(s.seq)
		e.attempts.forgetSource(s, nil)
		return
	}
	if err == nil {
		err = e.fill(s)
	}
	span.Number(tracing.KeyTokens, uint64(len(s.prompt.tokens)))
	span.Number(tracing.KeyCached, uint64(s.cached))
	span.End(err)
	if err == nil {
		err = e.keep(s)
	}
	if handoff.CodeOf(err) == handoff.CodeUnavailable {
		e.settle(&s.held)
	}
	e.endSource(s, err)
	if err := e.closeSource(s); err != nil && e.ctx.Err() == nil {
		e.c.Log.Error("close source", "attempt", s.plan.Attempt.String(), "error", err)
	}
	if e.takeBack(&s.held, true) {
		e.attempts.forgetSource(s, s.remembered())
	}
}

// endSource ends the run for those who follow it, too. Only the owner does so: a
// reader that was fast may have closed the source before the answer to our seal
// came, and those who follow must hear of the seal.
func (e *Engine) endSource(s *source, cause error) {
	s.end(cause)
	s.run.fail(s.why())
}

// allocateSource takes the longest cached prefix and blocks for the rest.
func (e *Engine) allocateSource(s *source) error {
	var shared []paged.Block
	if e.compute.Shares() {
		shared = e.arena.Lookup(s.prompt.salt, s.prompt.tokens)
	}
	q, err := e.allocate(shared, len(s.prompt.tokens))
	if err != nil {
		return err
	}
	s.seq, s.cached = q, len(shared)*e.form.layout.BlockTokens
	s.shape = e.form.shape(len(s.prompt.tokens))
	s.ranges = e.form.ranges(s.shape, q)
	return nil
}

func (e *Engine) openSource(s *source, trace string) error {
	grant, err := e.daemon.OpenSource(e.ctx, client.SourceSpec{Plan: s.plan, Shape: s.shape, Offsets: offsets(s.ranges),
		Blocks: physical(s.seq.Blocks()), Lease: s.prompt.lease, Trace: trace, Tenant: s.prompt.tenant})
	if err == nil {
		s.run.open(grant.Capability, e.daemon.PeerAddress(), len(s.prompt.tokens))
	}
	return err
}

// fill computes the prompt, announces each piece once it is written for good,
// and seals.
func (e *Engine) fill(s *source) error {
	began := time.Now()
	out := newAnnouncer(e, s)
	if err := out.blocks(e.ctx, s.cached/e.form.layout.BlockTokens); err != nil {
		return err
	}
	task, err := e.startPrefill(s, out)
	if err != nil {
		return err
	}
	for running := true; running; {
		news := out.news
		if e.isSerial(s) {
			news = nil
		}
		select {
		case <-news:
		case <-task.Done():
			running = false
		case <-s.stop.done():
			task.Stop(s.why())
			<-task.Done()
			return s.why()
		}
		if err := e.announce(s, out); err != nil {
			task.Stop(err)
			<-task.Done()
			return err
		}
	}
	if err := task.Err(); err != nil {
		return err
	}
	if err := out.whole(e.ctx, e.form.layout.BlocksFor(len(s.prompt.tokens))); err != nil {
		return err
	}
	if err := out.items(e.ctx); err != nil {
		return err
	}
	if err := e.daemon.Seal(e.ctx, s.plan.Attempt); err != nil {
		return e.whyClosed(s, err)
	}
	if e.compute.Shares() {
		if err := e.arena.Insert(s.prompt.salt, s.prompt.tokens, s.seq.Blocks()); err != nil {
			return handoff.Errorf(handoff.CodeInternal, "prefix: %s", err)
		}
	}
	s.run.seal(len(s.prompt.tokens), s.cached, time.Since(began))
	return nil
}

// isSerial says that a prompt is too short for its transfer to overlap its compute:
// a frame a layer would cost more than what the overlap hides.
func (e *Engine) isSerial(s *source) bool { return len(s.prompt.tokens) < e.c.SerialBelow }

// announce tells what was written since; of a short prompt once, when all of it is.
func (e *Engine) announce(s *source, out *announcer) error {
	if !e.isSerial(s) {
		return out.flush(e.ctx)
	}
	l := e.form.layout
	return out.stretches(e.ctx, s.cached/l.BlockTokens, l.BlocksFor(len(s.prompt.tokens)))
}

// whyClosed finds the cause of a source that was closed before its seal: the
// event that tells it may still be on its way.
func (e *Engine) whyClosed(s *source, refused error) error {
	if handoff.CodeOf(refused) != handoff.CodeClosed {
		return refused
	}
	e.settle(&s.held)
	if why := s.why(); why != nil {
		return why
	}
	return refused
}

// startPrefill hands the prompt to the device.
func (e *Engine) startPrefill(s *source, out *announcer) (*schedule.Task, error) {
	run, err := e.compute.Prefill(s.seq, s.plan.Attempt, s.prompt.tokens, s.cached, s.prompt.sampling)
	if err != nil {
		return nil, err
	}
	l, pos, end := e.form.layout, s.cached, len(s.prompt.tokens)
	return e.device.Prefill(end-pos, func(n int) error {
		first, last := pos/l.BlockTokens, (pos+n)/l.BlockTokens
		if pos+n == end {
			last = l.BlocksFor(end) // the rest of the last block belongs to nobody
		}
		written := s.cached / l.BlockTokens
		if err := run.Chunk(n, func(layer int) { out.wrote(layer, first, last); written = last }); err != nil {
			return err
		}
		s.seq.Seal(written) // rule 11
		if pos += n; pos == end {
			if err := run.Finish(); err != nil {
				return err
			}
			s.seq.Seal(last)
		}
		s.run.advance(pos)
		return nil
	}), nil
}

// keep holds a sealed source for its readers until somebody ends it.
func (e *Engine) keep(s *source) error {
	select {
	case <-s.stop.done():
		return s.why()
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

// closeSource tells the daemon, if it was not the daemon that told us.
func (e *Engine) closeSource(s *source) error {
	if s.gone.isSet() {
		return nil
	}
	code := handoff.CodeOf(s.why())
	err := insist(e.ctx, s.gone.done(), func(ctx context.Context) error { return e.daemon.CloseSource(ctx, s.plan.Attempt, code) })
	switch handoff.CodeOf(err) {
	case handoff.CodeClosed: // a repeat, or the daemon was first
		return nil
	case handoff.CodeNotReady: // another life of the daemon, whose events tell
		return nil
	}
	return err
}
