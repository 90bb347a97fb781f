package world

import (
	"context"
	"strings"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/client"
)

type daemonOf struct{ *node }

const lane = "memory" // of every pull

// Pull lands every piece, verifies and asks the question.
func (d daemonOf) Pull(ctx context.Context, s client.PullSpec, _ func(client.Progress)) (client.PullResult, error) {
	a := s.Plan.Attempt
	if err := d.enter(ctx, handoff.StepTransfer, a); err != nil {
		return client.PullResult{}, err
	}
	if string(s.Capability) != Capability {
		return client.PullResult{}, handoff.Errorf(handoff.CodeDenied, "another capability")
	}
	if err := d.sealed(ctx, s); err != nil {
		return client.PullResult{}, err
	}
	if s.Require != "" && s.Require != lane {
		return client.PullResult{}, handoff.Errorf(handoff.CodeMismatch, "this daemon offers no %s", s.Require)
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	defer d.w.touch()
	p := d.w.nodes[strings.TrimPrefix(s.SourceAddress, "peer:")]
	if t := d.targets.Get(a); t != nil && (t.State == handoff.TargetValidated || t.State == handoff.TargetCommitted) {
		return client.PullResult{Bytes: 128, Pieces: shape.Pieces(), Lane: lane}, nil
	}
	if err := d.move(s, p); err != nil {
		d.targets.Step(d.w.now, handoff.TargetInput{Event: handoff.TargetAbandon, Attempt: a, Cause: handoff.CodeOf(err)})
		return client.PullResult{}, err
	}
	return client.PullResult{Bytes: 128, Pieces: shape.Pieces(), Lane: lane}, nil
}

// sealed waits until P has sealed the state, or closed it.
func (d daemonOf) sealed(ctx context.Context, s client.PullSpec) error {
	for {
		d.w.mu.Lock()
		p := d.w.nodes[strings.TrimPrefix(s.SourceAddress, "peer:")]
		r, t, more := p.sources.Get(s.Plan.Attempt), d.targets.Get(s.Plan.Attempt), d.w.changed
		over := r == nil || r.State != handoff.SourceOpened || t != nil && t.State.Final()
		d.w.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return handoff.Errorf(handoff.CodeUnavailable, "the asker left the pull")
		}
	}
}

// move is a whole pull at one instant. Callers hold the lock.
func (d daemonOf) move(s client.PullSpec, p *node) error {
	a, now := s.Plan.Attempt, d.w.now
	at := func(in handoff.TargetInput) error {
		in.Attempt, in.Token = a, s.Token
		return d.targets.Step(now, in).Err()
	}
	from := func(in handoff.SourceInput) (handoff.SourceAnswer, error) {
		in.Attempt, in.P = a, s.Plan.P
		if r := p.sources.Get(a); r != nil {
			in.Grant = r.Grant
		}
		ans := p.sources.Step(now, in)
		return ans, ans.Err()
	}
	for piece := range shape.Pieces() {
		if err := at(handoff.TargetInput{Event: handoff.TargetPost, Piece: piece}); err != nil {
			return err
		}
		if _, err := from(handoff.SourceInput{Event: handoff.SourceRead, Piece: piece}); err != nil {
			return errorsAfter(err, at(handoff.TargetInput{Event: handoff.TargetFail, Piece: piece}))
		}
		if err := at(handoff.TargetInput{Event: handoff.TargetLand, Piece: piece}); err != nil {
			return err
		}
		if _, err := from(handoff.SourceInput{Event: handoff.SourceReadDone, Piece: piece}); err != nil {
			return err
		}
	}
	manifest := handoff.Manifest{Attempt: a, Shape: shape, Digests: []uint32{7, 7}}.Digest()
	if err := at(handoff.TargetInput{Event: handoff.TargetVerify, Manifest: manifest}); err != nil {
		return err
	}
	if err := at(handoff.TargetInput{Event: handoff.TargetAsk, Question: 1, Grant: 1}); err != nil {
		return err
	}
	if _, err := from(handoff.SourceInput{Event: handoff.SourceQuestion, Manifest: manifest, Nonce: 1}); err != nil {
		return errorsAfter(err, at(handoff.TargetInput{Event: handoff.TargetNo}))
	}
	if err := at(handoff.TargetInput{Event: handoff.TargetYes, Question: 1, Manifest: manifest, Grant: 1}); err != nil {
		return err
	}
	_, err := from(handoff.SourceInput{Event: handoff.SourceFinish})
	return err
}

// errorsAfter is err unless cleaning up after it failed, which is worse.
func errorsAfter(err, after error) error {
	if after != nil {
		return after
	}
	return err
}

func (d daemonOf) Commit(ctx context.Context, p handoff.Plan, t handoff.Token, _ handoff.OperationID, lease time.Duration) (client.TargetAnswer, error) {
	if err := d.enter(ctx, handoff.StepCommit, p.Attempt); err != nil {
		return client.TargetAnswer{}, err
	}
	d.w.mu.Lock()
	ans := d.targets.Step(d.w.now, handoff.TargetInput{Event: handoff.TargetCommit, Attempt: p.Attempt, D: p.D, Token: t, Lease: lease})
	hook := d.w.onCommit
	d.w.touch()
	d.w.mu.Unlock()
	if hook != nil && ans.Changed {
		hook(p)
	}
	return client.TargetAnswer{State: ans.State, Token: ans.Token}, ans.Err()
}

func (d daemonOf) Undo(ctx context.Context, p handoff.Plan, _ handoff.OperationID, sides client.Sides) (client.CloseAnswer, error) {
	return d.close(ctx, p, sides, handoff.TargetUndo, handoff.SourceUndo)
}

func (d daemonOf) Release(ctx context.Context, p handoff.Plan, _ handoff.OperationID, sides client.Sides) (client.CloseAnswer, error) {
	return d.close(ctx, p, sides, handoff.TargetRelease, handoff.SourceRelease)
}

func (d daemonOf) close(ctx context.Context, p handoff.Plan, sides client.Sides, te handoff.TargetEvent, se handoff.SourceEvent) (client.CloseAnswer, error) {
	step := handoff.StepUndoTransfer
	if sides.Source {
		step = handoff.StepUndoPrefill
	}
	if err := d.enter(ctx, step, p.Attempt); err != nil {
		return client.CloseAnswer{}, err
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	defer d.w.touch()
	var out client.CloseAnswer
	if sides.Target {
		ans := d.targets.Step(d.w.now, handoff.TargetInput{Event: te, Attempt: p.Attempt, D: p.D})
		if err := ans.Err(); err != nil {
			return out, err
		}
		out.Target, out.Token = ans.State, ans.Token
	}
	if sides.Source {
		ans := d.sources.Step(d.w.now, handoff.SourceInput{Event: se, Attempt: p.Attempt, P: p.P})
		if err := ans.Err(); err != nil {
			return out, err
		}
		out.Source, out.Validated = ans.State, ans.Validated
	}
	return out, nil
}

func (d daemonOf) Renew(_ context.Context, targets, sources []handoff.Attempt, lease time.Duration) (lost []handoff.Attempt, err error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, a := range targets {
		if d.targets.Step(d.w.now, handoff.TargetInput{Event: handoff.TargetRenew, Attempt: a, Lease: lease}).Code != handoff.CodeNone {
			lost = append(lost, a)
		}
	}
	for _, a := range sources {
		in := handoff.SourceInput{Event: handoff.SourceRenew, Attempt: a, Lease: lease}
		if r := d.sources.Get(a); r != nil {
			in.Grant = r.Grant
		}
		if d.sources.Step(d.w.now, in).Code != handoff.CodeNone {
			lost = append(lost, a)
		}
	}
	d.w.calls = append(d.w.calls, "renew at "+d.name)
	return lost, nil
}

func (d daemonOf) Describe(context.Context, bool) (*transferv1.Description, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	out := &transferv1.Description{Ready: !d.silent, Incarnation: uint64(d.targets.Incarnation)}
	for _, t := range d.targets.All() {
		out.Targets = append(out.Targets, &transferv1.TargetDescription{Plan: rpc.Plan(t.Plan), Blocks: 2, Freed: t.Freed})
	}
	return out, nil
}
