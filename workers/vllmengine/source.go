package vllmengine

import (
	"context"
	"sync"
	"time"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/tracing"
)

// source is one attempt at P: a request to vLLM for one token, whose blocks the
// connector then seals as the source.
type source struct {
	run
	request completion
	began   time.Time
	// Set before readable is closed, by the connector's word.
	opened
	readable chan struct{}
	reading  sync.Once
	// Set before settled, by the connector's word.
	sealed *sealed
}

// opened is what P has to tell of a source that may be read.
type opened struct {
	capability []byte
	address    string
	prompt     uint32
}

// sealed is what it has to tell of one that is whole.
type sealed struct {
	prompt, cached uint32
	took           time.Duration
}

// open says that the source may be read; only the first word counts.
func (s *source) open(o opened) {
	s.reading.Do(func() {
		s.opened = o
		close(s.readable)
	})
}

// prefill starts the run of a plan, or joins it, and waits for its seal. onOpen is
// called once, when the source may be read: before the seal where P's prompt is
// long, and its error ends the waiting.
//
// Idempotent under the attempt: one request, one grant, however often it is
// asked. When ctx ends the run goes on.
func (e *Engine) prefill(ctx context.Context, plan handoff.Plan, c completion, onOpen func(opened) error) (*sealed, error) {
	s, made, err := e.attempts.source(plan, func() (*source, error) {
		if err := e.stale(plan.P); err != nil {
			return nil, err
		}
		s := &source{request: c, began: time.Now(), readable: make(chan struct{})}
		s.begin(tracing.With(e.ctx, tracing.Text(ctx)), plan)
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	if made {
		e.runs.Go(func() { e.runSource(s) })
	}
	readable := s.readable
	for settled := false; !settled; {
		select {
		case <-readable:
			if err := onOpen(s.opened); err != nil {
				return nil, err
			}
			readable = nil
		case <-s.settled:
			settled = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if s.sealed == nil {
		return nil, s.remembered(handoff.CodeEngine)
	}
	if readable != nil { // both came at once
		if err := onOpen(s.opened); err != nil {
			return nil, err
		}
	}
	return s.sealed, nil
}

// runSource follows one request to its end, and then waits for its memory.
func (e *Engine) runSource(s *source) {
	answered := make(chan error, 1)
	go func() { answered <- e.vllm.whole(s.ctx, s.request) }()
	e.connector.wake()
	if err := e.awaitSeal(s, answered); err != nil {
		s.stop(err)
	}
	s.settle(nothing)
	if s.sealed != nil {
		select {
		case <-s.freed:
		case <-s.ctx.Done(): // cancelled: the connector closes it, and tells
			e.connector.drop(s.plan.Attempt)
			select {
			case <-s.freed:
			case <-e.ctx.Done():
			}
		}
	} else {
		e.connector.drop(s.plan.Attempt) // sealed too late for anybody
	}
	e.attempts.forgetSource(s, s.sealed != nil || s.why() != nil)
	s.stop(nil)
}

// awaitSeal waits for both words on a prefill: vLLM's and the connector's.
func (e *Engine) awaitSeal(s *source, answered <-chan error) error {
	select {
	case err := <-answered:
		e.connector.wake()
		if err != nil {
			return err
		}
		wait := time.NewTimer(e.c.notice)
		defer wait.Stop()
		select {
		case <-s.settled:
			return nil
		case <-s.ctx.Done():
			return s.why()
		case <-wait.C:
			return handoff.Errorf(handoff.CodeEngine, "vLLM answered, its connector did not")
		}
	case <-s.settled: // the connector was first
		if err := <-answered; err != nil && s.sealed == nil {
			return err
		}
		return nil
	}
}

// sourceOpened takes the connector's word that a prefill may be read.
func (e *Engine) sourceOpened(m *enginev1.ConnectorOpened) error {
	return e.known(m.GetAttempt(), nil, func(s *source) {
		s.open(opened{capability: m.GetCapability(), address: e.connector.peer(), prompt: m.GetPromptTokens()})
	})
}

// sourceSaid takes the connector's word on a prefill.
func (e *Engine) sourceSaid(m *enginev1.ConnectorSource) error {
	a, err := rpc.FromAttempt(m.GetAttempt())
	if err != nil {
		return err
	}
	s := e.attempts.findSource(a)
	if s == nil {
		return nil
	}
	if err := rpc.FromFailure(m.GetFailure()); err != nil {
		s.stop(err)
		s.settle(nothing)
		return nil
	}
	s.settle(func() {
		s.open(opened{capability: m.GetCapability(), address: e.connector.peer(), prompt: m.GetPromptTokens()})
		s.sealed = &sealed{prompt: m.GetPromptTokens(), cached: m.GetCachedTokens(), took: time.Since(s.began)}
	})
	return nil
}
