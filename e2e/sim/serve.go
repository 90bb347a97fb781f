package sim

import (
	"context"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
)

// Reserve holds two blocks and opens the target; a repeat answers the same token.
func (e *engineSim) reserve(_ context.Context, r engine.Reservation) (engine.Reserved, error) {
	a := r.Plan.Attempt
	e.mu.Lock()
	if r.Revision != e.revision {
		e.mu.Unlock()
		return engine.Reserved{}, handoff.Errorf(handoff.CodeMismatch, "revision %q, this engine has %q", r.Revision, e.revision)
	}
	d := e.targets[a]
	if d == nil {
		if e.over[a] {
			e.mu.Unlock()
			return engine.Reserved{}, handoff.Errorf(handoff.CodeClosed, "this attempt is over")
		}
		d = &decode{plan: r.Plan}
		if d.blocks = e.take(); d.blocks == nil {
			e.mu.Unlock()
			return engine.Reserved{}, handoff.Errorf(handoff.CodeCapacity, "no blocks")
		}
		for i, used := range e.slots {
			if !used {
				d.slot = uint32(i)
				break
			}
		}
		e.slots[d.slot] = true
		e.targets[a] = d
	}
	bs := d.blocks
	e.mu.Unlock()
	if bs == nil {
		return engine.Reserved{}, handoff.Errorf(handoff.CodeClosed, "this attempt is over")
	}
	answered := e.s.owns("open", e.h.name, a)
	var state handoff.TargetState
	err := e.beside(a, "open-target", func(att *fence.Engine) error {
		t, now, err := e.h.core().OpenTarget(att, fence.TargetSpec{Plan: r.Plan, Shape: shape(e.revision), Offsets: offsets(bs), Slot: d.slot, Lease: r.Lease})
		if err == nil {
			e.mu.Lock()
			d.token, d.opened, state = t, true, now
			e.mu.Unlock()
		}
		return err
	})
	e.mu.Lock()
	now := state
	e.mu.Unlock()
	answered(now, err)
	if err != nil && handoff.CodeOf(err) != handoff.CodeUnavailable {
		e.mu.Lock()
		if !d.opened && d.blocks != nil { // refused before it was open: nothing can be written
			e.give(d.blocks)
			e.slots[d.slot] = false
			d.blocks = nil
			delete(e.targets, a)
		}
		e.mu.Unlock()
	}
	return engine.Reserved{Token: d.token, Blocks: pieces}, err
}

// prefill joins the run of the attempt, or begins it.
func (e *engineSim) prefill(ctx context.Context, r engine.Prefill, opened func(engine.Opened)) (engine.Sealed, error) {
	a := r.Plan.Attempt
	e.mu.Lock()
	p := e.sources[a]
	if p == nil {
		if e.over[a] {
			e.mu.Unlock()
			return engine.Sealed{}, handoff.Errorf(handoff.CodeClosed, "this attempt is over")
		}
		p = &prefill{plan: r.Plan, opened: make(chan struct{}), done: make(chan struct{})}
		if p.blocks = e.take(); p.blocks == nil {
			e.mu.Unlock()
			return engine.Sealed{}, handoff.Errorf(handoff.CodeCapacity, "no blocks")
		}
		e.sources[a] = p
		go e.begin(p, r)
	}
	e.mu.Unlock()
	select {
	case <-p.opened:
	case <-ctx.Done():
		return engine.Sealed{}, unavailable("the asker left")
	case <-e.life.ctx.Done():
		return engine.Sealed{}, unavailable("the engine died")
	}
	if p.grant.Capability != nil {
		opened(engine.Opened{Capability: p.grant.Capability, SourceAddress: e.h.name, PromptTokens: uint32(len(r.Prompt))})
	}
	select {
	case <-p.done:
		return engine.Sealed{PromptTokens: uint32(len(r.Prompt))}, p.err
	case <-ctx.Done():
		return engine.Sealed{}, unavailable("the asker left")
	case <-e.life.ctx.Done():
		return engine.Sealed{}, unavailable("the engine died")
	}
}

func (e *engineSim) begin(p *prefill, r engine.Prefill) {
	e.mu.Lock()
	bs := p.blocks
	e.mu.Unlock()
	err := e.beside(p.plan.Attempt, "open-source", func(att *fence.Engine) (err error) {
		p.grant, err = e.h.core().OpenSource(att, fence.SourceSpec{Plan: p.plan, Shape: shape(e.revision), Offsets: offsets(bs), Blocks: bs, Lease: r.Lease})
		return err
	})
	if err != nil {
		p.err = err
		e.mu.Lock()
		if handoff.CodeOf(err) != handoff.CodeUnavailable && p.blocks != nil {
			e.give(p.blocks)
			p.blocks = nil
		}
		e.mu.Unlock()
		close(p.opened)
		close(p.done)
		return
	}
	close(p.opened)
	e.compute(p)
}

// attach tells an attempt's tokens from a position on, once it is committed.
func (e *engineSim) attach(ctx context.Context, a handoff.Attempt, token handoff.Token, from uint32, each func(engine.DecodeEvent) error) error {
	for i := from; ; {
		e.mu.Lock()
		d, more := e.targets[a], e.changed
		var x decode
		if d != nil {
			x = *d
		}
		e.mu.Unlock()
		switch {
		case d == nil:
			return handoff.Errorf(handoff.CodeStaleIncarnation, "%s knows nothing of the attempt", e.life.name)
		case x.opened && x.token != token:
			return handoff.Errorf(handoff.CodeStaleToken, "another token")
		case i < x.tokens:
			ev := engine.DecodeEvent{Position: i, Text: []byte{'a' + byte(i)}, Tokens: 1}
			if i == answer-1 {
				ev.Finish, ev.Counts = engine.FinishStop, engine.Counts{Direct: promptTokens, Completion: answer}
			}
			if err := each(ev); err != nil || ev.Finish != "" {
				return err
			}
			i++
			continue
		case x.state == handoff.TargetClosed:
			return handoff.Errorf(handoff.CodeClosed, "never committed")
		case x.state == handoff.TargetAborted:
			return handoff.Errorf(handoff.CodeAborted, "released")
		}
		select {
		case <-more:
		case <-ctx.Done():
			return unavailable("the reader left")
		case <-e.life.ctx.Done():
			return unavailable("the engine died")
		}
	}
}
