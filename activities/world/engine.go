package world

import (
	"context"
	"strconv"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
)

// Capability is what a world's P hands out.
const Capability = "capability"

var shape = handoff.Shape{Revision: Revision, Layout: handoff.Digest{9}, Tokens: 32,
	Groups: []handoff.Group{{Name: "kv", Layers: 1, Blocks: 2, BlockBytes: 64}}}

type engineOf struct{ *node }

func (e engineOf) Describe(context.Context) (engine.Description, error) {
	return engine.Description{Engine: handoff.EngineID(e.name), Role: engine.RoleBoth, Model: Model, Revision: Revision}, nil
}

func (e engineOf) Reserve(ctx context.Context, r engine.Reservation) (engine.Reserved, error) {
	if err := e.enter(ctx, handoff.StepReserve, r.Plan.Attempt); err != nil {
		return engine.Reserved{}, err
	}
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	s := shape
	ans := e.targets.Step(e.w.now, handoff.TargetInput{Event: handoff.TargetOpen, Attempt: r.Plan.Attempt, D: r.Plan.D, Plan: &r.Plan, Shape: &s, Lease: r.Lease})
	e.w.touch()
	return engine.Reserved{Token: ans.Token, Blocks: 2}, ans.Err()
}

func (e engineOf) Prefill(ctx context.Context, p engine.Prefill, opened func(engine.Opened), _ func(uint32)) (engine.Sealed, error) {
	a := p.Plan.Attempt
	if err := e.enter(ctx, handoff.StepPrefill, a); err != nil {
		return engine.Sealed{}, err
	}
	step := func(in handoff.SourceInput) error {
		in.Attempt, in.P, in.Digest = a, p.Plan.P, 7
		e.w.mu.Lock()
		defer e.w.mu.Unlock()
		return e.sources.Step(e.w.now, in).Err()
	}
	s := shape
	if err := step(handoff.SourceInput{Event: handoff.SourceOpen, Plan: &p.Plan, Shape: &s, Lease: p.Lease}); err != nil {
		return engine.Sealed{}, err
	}
	opened(engine.Opened{Capability: []byte(Capability), SourceAddress: "peer:" + e.name, PromptTokens: uint32(len(p.Prompt))})
	if err := e.w.pass(ctx, StepCompute); err != nil {
		return engine.Sealed{}, err
	}
	for piece := range shape.Pieces() {
		if err := step(handoff.SourceInput{Event: handoff.SourceAnnounce, Piece: piece}); err != nil {
			return engine.Sealed{}, err
		}
	}
	if err := step(handoff.SourceInput{Event: handoff.SourceSeal}); err != nil {
		return engine.Sealed{}, err
	}
	e.w.mu.Lock()
	e.w.touch()
	e.w.mu.Unlock()
	return engine.Sealed{PromptTokens: uint32(len(p.Prompt))}, nil
}

// StepCompute is where Hold stops a prefill after its source is open.
const StepCompute handoff.Step = "compute"

// Attach decodes Text once the attempt is committed; the text stays for ever.
func (e engineOf) Attach(ctx context.Context, plan handoff.Plan, token handoff.Token, from uint32, each func(engine.DecodeEvent) error) error {
	a := plan.Attempt
	if err := e.enter(ctx, handoff.StepDecode, a); err != nil {
		return err
	}
	if err := e.committed(ctx, a, token); err != nil {
		return err
	}
	for i := from; i < uint32(len(Text)); i++ {
		for _, step := range []handoff.Step{StepToken, TokenAt(i)} {
			if err := e.w.pass(ctx, step); err != nil {
				return err
			}
		}
		if err := e.broken(i); err != nil {
			return err
		}
		ev := engine.DecodeEvent{Position: i, Text: []byte{Text[i]}, Tokens: 1}
		if i == uint32(len(Text))-1 {
			ev.Finish, ev.Counts = engine.FinishStop, engine.Counts{Direct: 32, Completion: uint32(len(Text))}
			e.w.Finish(e.name, a)
		}
		if err := each(ev); err != nil {
			return err
		}
	}
	return nil
}

func (e engineOf) broken(position uint32) error {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	if b := e.breaks; b != nil && b.position == position {
		e.breaks = nil
		return b.err
	}
	return nil
}

// StepToken is where Hold stops a decode before each token.
const StepToken handoff.Step = "token"

// TokenAt is where Hold stops a decode before the token at one position.
func TokenAt(position uint32) handoff.Step {
	return StepToken + handoff.Step("-"+strconv.FormatUint(uint64(position), 10))
}

// committed waits until the attempt may be decoded.
func (e engineOf) committed(ctx context.Context, a handoff.Attempt, token handoff.Token) error {
	for {
		e.w.mu.Lock()
		var r handoff.Target
		known, more := e.targets.Get(a), e.w.changed
		if known != nil {
			r = *known
		}
		e.w.mu.Unlock()
		switch {
		case known == nil:
			return handoff.Errorf(handoff.CodeStaleIncarnation, "%s knows nothing of %s", e.name, a)
		case r.Token() != token:
			return handoff.Errorf(handoff.CodeStaleToken, "%s", token)
		case r.State == handoff.TargetClosed:
			return handoff.Errorf(handoff.CodeClosed, "never committed")
		case r.State == handoff.TargetAborted && r.Cause != handoff.CodeNone:
			return handoff.Errorf(handoff.CodeAborted, "released")
		case r.State == handoff.TargetCommitted, r.State == handoff.TargetAborted:
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return handoff.Errorf(handoff.CodeUnavailable, "the reader left")
		}
	}
}

func (e engineOf) Cancel(context.Context, handoff.Plan) (bool, error) { return false, nil }

// Finish is D's word that a decode is over.
func (w *World) Finish(name string, a handoff.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name].targets.Step(w.now, handoff.TargetInput{Event: handoff.TargetFinish, Attempt: a})
	w.touch()
}
