package vllmengine

import (
	"context"
	"sync/atomic"
	"time"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/workers/refengine/answer"
)

// target is one attempt at D: a request to vLLM that waits for its commit, and
// the answer that it streams then.
type target struct {
	run
	request   completion
	log       *answer.Log
	committed chan struct{}
	// Set before settled, by the connector's word.
	token          handoff.Token
	blocks         uint32
	prompt, cached uint32
	opened         bool
	recomputed     atomic.Uint32 // of the prompt's tokens: the engine lost their blocks after the commit
}

// counts says how each prompt token's state came to D.
func (t *target) counts(completion uint32) answer.Counts {
	lost := min(t.recomputed.Load(), t.prompt)
	cached := t.cached - min(t.cached, lost)
	return answer.Counts{Direct: t.prompt - cached - lost, Cached: cached, Recomputed: lost, Completion: completion}
}

// reserve sends D's request, or joins who did, and waits until vLLM has given it
// blocks and the connector has opened them as the target.
//
// Idempotent under the attempt: one request, one generation, one token.
func (e *Engine) reserve(ctx context.Context, plan handoff.Plan, c completion) (*target, error) {
	t, made, err := e.attempts.target(plan, func() (*target, error) {
		if err := e.stale(plan.D); err != nil {
			return nil, err
		}
		t := &target{request: c, log: answer.NewLog(), committed: make(chan struct{})}
		t.begin(tracing.With(e.ctx, tracing.Text(ctx)), plan)
		return t, nil
	})
	if err != nil {
		return nil, err
	}
	if made {
		e.runs.Go(func() { e.runTarget(t) })
	}
	select {
	case <-t.settled:
	case <-ctx.Done():
		return nil, handoff.Errorf(handoff.CodeUnavailable, "reserve goes on: %s", ctx.Err())
	}
	if t.opened {
		return t, nil
	}
	return nil, t.remembered(handoff.CodeEngine)
}

// runTarget follows one request to its end, and then waits for its memory.
func (e *Engine) runTarget(t *target) {
	streamed := make(chan error, 1)
	go func() { streamed <- e.vllm.stream(t.ctx, t.request, e.passOn(t)) }()
	e.connector.wake()
	wait := time.NewTimer(e.c.QueueWait)
	defer wait.Stop()
	select {
	case <-t.settled:
	case <-t.ctx.Done():
	case <-wait.C:
		t.stop(handoff.Errorf(handoff.CodeCapacity, "vLLM gave no blocks within %s", e.c.QueueWait))
	case err := <-streamed:
		streamed <- err
	}
	err := <-streamed
	e.connector.wake() // its request ended: vLLM looks at it at once
	if err == nil && !t.log.Over() {
		err = handoff.Errorf(handoff.CodeEngine, "vLLM ended the stream early")
	}
	if err != nil {
		e.endTarget(t, err)
	}
	t.settle(nothing)
	if t.opened {
		select {
		case <-t.freed:
		case <-e.ctx.Done():
		}
	}
	e.attempts.forgetTarget(t, t.opened)
	t.stop(nil)
}

// endTarget ends the answer in the same instant.
func (e *Engine) endTarget(t *target, cause error) {
	t.stop(cause)
	t.log.Break(t.why())
}

// passOn takes the pieces of vLLM's answer. The first waits for the connector's
// word: what was not committed is no answer.
func (e *Engine) passOn(t *target) func(piece) error {
	var held []byte // text that came without a token of its own
	return func(p piece) error {
		select {
		case <-t.committed:
		default:
			if err := e.awaitCommit(t); err != nil {
				return err
			}
		}
		out := answer.Piece{Text: append(held, p.text...), Tokens: p.tokens}
		held = nil
		switch {
		case p.finish != "":
			t.log.Finish(out, p.finish, t.counts(t.log.Len()+p.tokens))
		case p.tokens == 0:
			held = out.Text
		default:
			t.log.Append(out)
		}
		return nil
	}
}

func (e *Engine) awaitCommit(t *target) error {
	wait := time.NewTimer(e.c.notice)
	defer wait.Stop()
	select {
	case <-t.committed:
		return nil
	case <-t.ctx.Done():
		return t.why()
	case <-wait.C:
		return handoff.Errorf(handoff.CodeInternal, "vLLM answers %s, which was not committed", t.plan.Attempt)
	}
}

// targetSaid takes the connector's word on a reservation.
func (e *Engine) targetSaid(m *enginev1.ConnectorTarget) error {
	a, err := rpc.FromAttempt(m.GetAttempt())
	if err != nil {
		return err
	}
	t := e.attempts.findTarget(a)
	if t == nil {
		return nil // the connector ends what nobody waits for: its request is over
	}
	if err := rpc.FromFailure(m.GetFailure()); err != nil {
		e.endTarget(t, err)
		t.settle(nothing)
		return nil
	}
	token, err := rpc.FromToken(m.GetToken())
	if err != nil {
		return err
	}
	t.settle(func() {
		t.token, t.blocks, t.prompt, t.cached, t.opened = token, m.GetBlocks(), m.GetPromptTokens(), m.GetCachedTokens(), true
	})
	return nil
}

// targetOver is transferd's end of a target. After a commit the code is always
// *aborted*: nobody may take it for a leave to plan another (rule 5). After an
// answer that is complete it changes nothing.
func (e *Engine) targetOver(t *target, cause handoff.Code) {
	switch {
	case t.log.Over():
	case isClosed(t.committed):
		e.endTarget(t, handoff.Errorf(handoff.CodeAborted, "%s was ended after its commit: %s", t.plan.Attempt, cause))
	default:
		e.endTarget(t, closedBecause(cause, t.plan.Attempt))
	}
}

// closedBecause types the end of what was never committed here.
func closedBecause(cause handoff.Code, a handoff.Attempt) error {
	switch cause {
	case handoff.CodeNone, handoff.CodeUnavailable:
		cause = handoff.CodeClosed
	}
	return handoff.Errorf(cause, "%s is closed", a)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
