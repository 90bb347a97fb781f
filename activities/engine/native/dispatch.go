package native

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
)

// dispatch sends D the request. The caller holds the lock and has committed.
func (f *Fleet) dispatch(a *attempt) {
	d := &decode{done: make(chan struct{}), sent: time.Now()}
	d.ctx, d.stop = context.WithCancelCause(f.life)
	a.decode = d
	close(a.sent)
	f.wg.Go(func() {
		d.answer, d.err = a.d.server.Decode(tracing.With(d.ctx, a.prefill.trace), a.prefill.request, a.prefill.got, a.salt(), a.prefill.header)
		if d.err != nil {
			f.undispatched(a, d.err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		close(d.done)
		switch {
		case d.err != nil:
			f.free(a)
		case a.cause != nil:
			d.answer.Close()
		}
	})
}

// undispatched notes what D's refusal means for later epochs. P is told to free
// after it: D's API refused before its connector could.
func (f *Fleet) undispatched(a *attempt, err error) {
	f.failed(a.d, a.prefill.ref, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	a.decode.refused = answeredBy(err)
	if handoff.CodeOf(err).Advice() == handoff.GiveUp {
		f.family(a.plan.Attempt.Handoff).final = err
	}
	if handoff.CodeOf(err) == handoff.CodeCapacity {
		a.d.full(f.at(a.d, func(x *attempt) bool { return x.decode != nil && x.decode.token }))
	}
}

// at counts the attempts at a D. The caller holds the lock.
func (f *Fleet) at(d *seat, which func(*attempt) bool) (n int) {
	for _, a := range f.attempts {
		if a.d == d && which(a) {
			n++
		}
	}
	return n
}

// Attach gives D's bytes to the one reader. There is no second reading: the
// bytes are on one connection.
func (s *seat) Attach(ctx context.Context, p handoff.Plan, token handoff.Token, from uint32, each func(engine.DecodeEvent) error) error {
	a, err := s.f.hold(p)
	if err != nil {
		return s.f.unread(p.Attempt, err)
	}
	if from != 0 {
		return handoff.Errorf(handoff.CodeGone, "an engine's stream is read once, from its beginning")
	}
	d, err := s.f.reader(ctx, a, token)
	if d == nil {
		return err
	}
	if err != nil {
		s.f.finish(a, err)
		return err
	}
	// D's connection lives as long as its reader.
	release := context.AfterFunc(ctx, func() { d.stop(handoff.Errorf(handoff.CodeUnavailable, "its reader stopped")) })
	defer release()
	err = s.f.read(a, d, each)
	s.f.finish(a, err)
	return err
}

// reader waits for the commit and for D's answer, and takes the answer.
func (f *Fleet) reader(ctx context.Context, a *attempt, token handoff.Token) (*decode, error) {
	gone := handoff.Errorf(handoff.CodeUnavailable, "the reader stopped waiting")
	select {
	case <-a.sent:
	case <-a.ended:
		return nil, closed(a.cause)
	case <-ctx.Done():
		return nil, gone
	}
	d, err := f.take(a, token)
	if err != nil {
		return nil, err
	}
	select {
	case <-d.done:
		return d, d.err
	case <-ctx.Done():
		d.stop(gone)
		return nil, gone
	}
}

func (f *Fleet) take(a *attempt, token handoff.Token) (*decode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, d := f.table.Get(a.plan.Attempt), a.decode
	switch {
	case a.cause != nil:
		return nil, closedAs(t)
	case token != t.Token():
		return nil, handoff.Errorf(handoff.CodeStaleToken, "%s", token)
	case d.taken:
		return nil, handoff.Errorf(handoff.CodeGone, "the stream of this attempt has its reader")
	}
	d.taken = true
	return d, nil
}

// unread is what a reader is told that comes after the end.
func (f *Fleet) unread(k handoff.Attempt, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.table.Get(k); t != nil && t.State == handoff.TargetClosed {
		return closed(err)
	}
	return err
}

// closed is what a reader is told of an attempt that ended before its commit:
// the workflow knows why, by its own steps.
func closed(cause error) error {
	if cause == nil {
		return handoff.Errorf(handoff.CodeClosed, "the attempt is closed")
	}
	return handoff.Errorf(handoff.CodeClosed, "the attempt is closed: %s", cause)
}

// read gives the parts as they come. Nothing is given before P was asked again.
func (f *Fleet) read(a *attempt, d *decode, each func(engine.DecodeEvent) error) error {
	defer d.answer.Close()
	var position uint32
	for first := true; ; first = false {
		part, err := d.answer.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if first && answeredBy(err) {
				f.undispatched(a, err) // vLLM says of some requests only inside of its stream that they are wrong
			}
			return err
		}
		if first {
			f.mu.Lock()
			d.read = true
			f.mu.Unlock()
			if a.prefill.got.Transfer != nil {
				a.d.fetched(a.p)
			}
			if err := f.validated(d.ctx, a); err != nil {
				return err
			}
			f.mu.Lock()
			d.token = true
			open := f.at(a.d, func(x *attempt) bool { return x.open })
			f.mu.Unlock()
			a.d.began(open)
		}
		e := engine.DecodeEvent{Position: position, Text: part.Bytes, Tokens: part.Tokens, Finish: part.Finish}
		position += part.Tokens
		if part.Finish != "" {
			e.Counts = engine.Counts{Completion: position, Cached: a.prefill.got.CachedTokens}
			if a.prefill.got.Transfer == nil {
				e.Counts = engine.Counts{Completion: position, Recomputed: a.prefill.got.PromptTokens}
			}
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// validated decides whether D can have read what P computed. D has its first
// token, so the fetch is over: within our lease P cannot have let go. Later it
// may have; then only P's counters can tell, where D renews and P counts. P is
// asked in either case: a counter that rose, or another life of P, poisons the
// attempt whatever our clock says (museum V-02).
func (f *Fleet) validated(ctx context.Context, a *attempt) error {
	run := a.prefill
	if run.got.Transfer == nil {
		return nil
	}
	late := f.leased(run)
	if late != nil {
		if !f.caps.Heartbeat || !f.caps.Counters {
			return f.poisoned(late, "late")
		}
		select { // what expired before the first token has been counted by then
		case <-time.After(settleFor):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	after, err := a.p.fresh(asking)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return f.poisoned(handoff.Errorf(handoff.CodeNotValidated, "P could not be asked whether it held the state: %s", err), "silent")
	}
	if err := sameLife(run.before, after); err != nil {
		return f.poisoned(err, "life")
	}
	up, known := risen(run.before, after)
	switch {
	case up:
		return f.poisoned(handoff.Errorf(handoff.CodeNotValidated, "a lease of P lapsed during the hand-off"), "counters")
	case !known && late != nil:
		return f.poisoned(late, "late")
	}
	return nil
}

func (f *Fleet) poisoned(err error, reason string) error {
	f.metrics.poisoned.WithLabelValues(reason).Inc()
	return err
}

// finish ends a committed attempt once its reading is over, well or not.
func (f *Fleet) finish(a *attempt, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.cause != nil {
		return
	}
	if failure := failureOf(err); failure != nil && failure.Down {
		f.wg.Go(func() { a.d.missed(failure) })
	}
	f.table.Step(f.now(), handoff.TargetInput{Event: handoff.TargetFinish, Attempt: a.plan.Attempt})
	cause := err
	if cause == nil {
		cause = handoff.Errorf(handoff.CodeClosed, "the decode is over")
	}
	f.over(a.plan.Attempt, cause)
}

// answeredBy says that a failure is an engine's own answer, not the want of one.
func answeredBy(err error) bool {
	failure := failureOf(err)
	return failure != nil && failure.Status != 0
}

func failureOf(err error) *vllm.Failure {
	var failure *vllm.Failure
	if errors.As(err, &failure) {
		return failure
	}
	return nil
}
