package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// errGivenUp ends the reading of an attempt whose bytes may not be delivered.
var errGivenUp = handoff.Errorf(handoff.CodeClosed, "the attempt was given up")

// Reattach budget: a broken connection to D before the first token is tried
// again this often before the attempt is given up.
const (
	attachTries = 4
	attachPause = 50 * time.Millisecond
)

// read attaches to D and brings the attempt's tokens into the stream. It waits
// for the commit; D tells nothing before it.
func (o *Orchestrator) read(ctx context.Context, s *stream, p handoff.Plan, r steps.Route, token handoff.Token) {
	var err error
	for try := range attachTries {
		if err = o.attach(ctx, s, p, r, token); err == nil || errors.Is(err, errGivenUp) || ctx.Err() != nil || s.over() {
			return
		}
		if handoff.CodeOf(err) != handoff.CodeUnavailable || s.delivering(p.Attempt) {
			break
		}
		select {
		case <-time.After(attachPause << try):
		case <-ctx.Done():
			return
		}
	}
	o.lost(ctx, s, p, err)
}

func (o *Orchestrator) attach(ctx context.Context, s *stream, p handoff.Plan, r steps.Route, token handoff.Token) error {
	d, err := o.cfg.Engines.Engine(r.D.Engine)
	if err != nil {
		return err
	}
	return d.Attach(ctx, p, token, 0, func(e engine.DecodeEvent) error {
		ev := Event{Position: e.Position, Tokens: e.Tokens, Text: string(e.Text), Finish: e.Finish}
		if e.Finish != "" {
			ev.Usage = Usage{Prompt: s.input().PromptTokens, Completion: e.Counts.Completion,
				Direct: e.Counts.Direct, Cached: e.Counts.Cached, Recomputed: e.Counts.Recomputed}
		}
		if !s.deliver(p.Attempt, ev) {
			return errGivenUp
		}
		if e.Finish != "" {
			o.finished(s, p, ev)
		}
		return nil
	})
}

func (s *stream) delivering(a handoff.Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading.State(a) == handoff.ReaderDelivering
}

// lost handles a reading that ended without the stream's end. After the first
// token nothing is sampled again: the stream ends with a typed error (S10).
// Before it, the reader gives the attempt up and reports that to the workflow,
// which may plan another.
func (o *Orchestrator) lost(ctx context.Context, s *stream, p handoff.Plan, cause error) {
	code := handoff.CodeOf(cause)
	if s.giveUp(p.Attempt) {
		o.steps.Attempts.Unkeep(p.Attempt)
		if code == handoff.CodeClosed {
			return // never committed: the workflow knows it by its own steps
		}
		if code.Advice() != handoff.NewEpoch {
			code = handoff.CodeEngine
		}
		o.report(s, steps.Ended{Code: code.String(), Detail: cause.Error(), Attempt: p.Attempt})
		return
	}
	err := handoff.Errorf(handoff.CodeStreamBroken, "after position %d: %s", s.position(), cause.Error())
	s.fail(err)
	o.report(s, steps.Ended{Code: err.Code.String(), Detail: err.Detail, Attempt: p.Attempt, Usage: s.usage(), FirstToken: s.first.Microseconds()})
}

func (s *stream) position() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens
}

func (s *stream) usage() steps.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := steps.Usage{Prompt: s.in.PromptTokens, Completion: s.tokens}
	if n := len(s.events); n > 0 && s.events[n-1].Finish != "" {
		e := s.events[n-1].Usage
		u = steps.Usage(e)
	}
	return u
}

// finished reports a whole stream.
func (o *Orchestrator) finished(s *stream, p handoff.Plan, e Event) {
	o.over(s, "completed")
	o.report(s, steps.Ended{Finish: e.Finish, Usage: s.usage(), Attempt: p.Attempt, FirstToken: s.first.Microseconds()})
}

// report signals the workflow off the critical path, again until the server
// has it. Where no workflow runs any more (record: handoff, or terminated) the
// reader closes what is left itself: the end is its own to record.
func (o *Orchestrator) report(s *stream, e steps.Ended) {
	in := s.input()
	o.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, in.Decode)
		defer cancel()
		if in.Record == steps.RecordHandoff && e.Code == "" {
			o.closeDetached(ctx, in, e)
			return
		}
		pause := 20 * time.Millisecond
		for {
			err := o.signal(ctx, in, e)
			if err == nil {
				return
			}
			if gone(err) {
				o.closeDetached(ctx, in, e)
				return
			}
			select {
			case <-time.After(pause):
				pause = min(2*pause, 2*time.Second)
			case <-ctx.Done():
				o.log.Error("the end of a stream could not be recorded", "handoff", in.ID, "attempt", e.Attempt.String(), "error", err.Error())
				return
			}
		}
	})
}

// closeDetached ends what a handoff without a running workflow still holds.
func (o *Orchestrator) closeDetached(ctx context.Context, in steps.Input, e steps.Ended) {
	var err error
	if e.Code == "" {
		_, err = o.steps.UndoReserve(ctx, steps.StepInput{Request: in, Hard: true})
	} else {
		_, err = o.steps.ReleaseNow(ctx, in)
	}
	if err != nil {
		o.log.Warn("what a detached handoff held is left to its leases", "handoff", in.ID, "error", err.Error())
	}
}
