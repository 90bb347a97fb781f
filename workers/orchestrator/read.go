package orchestrator

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/contracts/tracing"
)

// errGivenUp ends the reading of an attempt whose bytes may not be delivered.
var errGivenUp = handoff.Errorf(handoff.CodeClosed, "the attempt was given up")

// A broken connection to D is tried again this often, from the next position,
// before the stream counts as broken.
const (
	attachTries = 4
	attachPause = 50 * time.Millisecond
)

// read attaches to D and brings the attempt's tokens into the stream. It waits
// for the commit; D tells nothing before it.
func (o *Orchestrator) read(ctx context.Context, s *stream, p handoff.Plan, r steps.Route, token handoff.Token) {
	if !s.ready(ctx) {
		return
	}
	var err error
	for try := range attachTries {
		err = o.attach(ctx, s, p, r, token)
		if err == nil || ctx.Err() != nil || s.isOver() {
			return // whole, given up, or this process stops
		}
		if handoff.CodeOf(err) != handoff.CodeUnavailable {
			break
		}
		select {
		case <-time.After(attachPause << try):
		case <-ctx.Done():
			return
		}
	}
	o.lost(s, p, err)
}

func (o *Orchestrator) attach(ctx context.Context, s *stream, p handoff.Plan, r steps.Route, token handoff.Token) (err error) {
	d, err := o.cfg.Engines.Engine(r.D.Engine)
	if err != nil {
		return err
	}
	from, base := s.placeIn(p.Attempt)
	ctx, span := tracing.Start(tracing.With(ctx, s.input().Trace), tracing.SpanStream, p.Attempt)
	defer func() { span.End(err) }()
	span.Text(tracing.KeyEngine, string(p.D.Engine))
	return d.Attach(ctx, p, token, from, func(e engine.DecodeEvent) error {
		ev := Event{Position: base + e.Position, Tokens: e.Tokens, Text: string(e.Text), Finish: e.Finish}
		if e.Finish != "" {
			prompt := e.Counts.Direct + e.Counts.Cached + e.Counts.Recomputed // as the engine's tokenizer counts
			if prompt == 0 || base > 0 {
				prompt = s.input().PromptTokens
			}
			ev.Usage = usageOf(prompt, base, e.Counts)
		}
		if err := s.deliver(p.Attempt, ev); err != nil {
			return err
		}
		if e.Finish != "" {
			end := s.report(p.Attempt)
			end.Finish = e.Finish
			o.report(s, end)
		}
		return nil
	})
}

// lost handles a reading that ended without the stream's end. After the first
// token nothing is sampled again: the stream ends with a typed error (S10).
// Before it, the reader gives the attempt up and reports that to the workflow,
// which may plan another.
func (o *Orchestrator) lost(s *stream, p handoff.Plan, cause error) {
	code := handoff.CodeOf(cause)
	end := s.report(p.Attempt)
	end.Detail = cause.Error()
	switch s.giveUp(p.Attempt) {
	case handoff.ReaderGivenUp:
		o.steps.Attempts.Unkeep(p.Attempt) // it renews the decode's lease no more
		switch {
		case code == handoff.CodeClosed:
			return // never committed: the workflow knows it by its own steps
		case code == handoff.CodeGone: // D no longer holds the stream's beginning
			s.fail(handoff.Errorf(handoff.CodeGone, "%s", cause.Error()))
		case code.Advice() != handoff.NewEpoch:
			code = handoff.CodeEngine
		}
		end.Code, end.Lost = code.String(), true
	default:
		if o.resume(s, p, end) {
			return
		}
		position, _ := s.place(p.Attempt)
		end.Code, end.Detail = handoff.CodeStreamBroken.String(), "after position "+itoa(position)+": "+cause.Error()
		s.fail(&handoff.Error{Code: handoff.CodeStreamBroken, Detail: end.Detail})
	}
	o.report(s, end)
}
