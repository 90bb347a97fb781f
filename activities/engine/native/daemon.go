package native

import (
	"context"
	"crypto/sha256"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/client"
)

// lane is what transfers are reported by: the engines' own.
const lane = "engine"

// daemon stands in for the transferd of one engine.
type daemon struct{ s *seat }

// Pull lands P's parameters as the target's one piece and validates it against
// our lease. No byte of KV moves yet, and none is reported.
//
// Idempotent: a validated target answers at once.
func (d daemon) Pull(ctx context.Context, spec client.PullSpec, _ func(client.Progress)) (client.PullResult, error) {
	f := d.s.f
	a, err := f.hold(spec.Plan)
	if err != nil {
		return client.PullResult{}, err
	}
	f.mu.Lock()
	run := a.prefill
	f.mu.Unlock()
	if run == nil {
		return client.PullResult{}, handoff.Errorf(handoff.CodeNotReady, "P was not asked yet")
	}
	select {
	case <-run.done:
	case <-ctx.Done():
		return client.PullResult{}, handoff.Errorf(handoff.CodeUnavailable, "the asker stopped waiting")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.cause != nil {
		return client.PullResult{}, a.cause
	}
	for _, check := range []error{run.err, f.leased(run), f.fitsContext(a, run.request, run.got)} {
		if check != nil {
			f.abandon(a, check)
			return client.PullResult{}, check
		}
	}
	return f.land(a, run, spec.Token)
}

// land walks the target from open to validated. The caller holds the lock.
func (f *Fleet) land(a *attempt, run *prefill, token handoff.Token) (client.PullResult, error) {
	params := []byte("recomputed at D")
	if run.got.Transfer != nil {
		params = run.got.Transfer.Params
	}
	manifest := handoff.Digest(sha256.Sum256(params))
	result := client.PullResult{Pieces: 1, Lane: lane, Manifest: manifest}
	if t := f.table.Get(a.plan.Attempt); t != nil && t.State >= handoff.TargetValidated && t.State.Live() {
		return result, nil
	}
	k := a.plan.Attempt
	const grant, question = 1, 1 // one a life: nobody else could answer or ask here
	for _, in := range []handoff.TargetInput{
		{Event: handoff.TargetPost, Grant: grant}, {Event: handoff.TargetLand},
		{Event: handoff.TargetVerify, Manifest: manifest}, {Event: handoff.TargetAsk, Question: question, Grant: grant},
		{Event: handoff.TargetYes, Question: question, Grant: grant, Manifest: manifest},
	} {
		in.Attempt, in.D, in.Token = k, a.plan.D, token
		if err := f.table.Step(f.now(), in).Err(); err != nil {
			return client.PullResult{}, err
		}
	}
	return result, nil
}

// Commit sends D the request, once, and only while our lease on P's blocks
// holds (museum V-01). It does not wait for D's answer: the reader does.
//
// Idempotent: a repeat answers the present state (rule 8).
func (d daemon) Commit(_ context.Context, p handoff.Plan, token handoff.Token, _ handoff.OperationID, lease time.Duration) (client.TargetAnswer, error) {
	f := d.s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts[p.Attempt]
	if a == nil {
		if err := f.refused(p); err != nil {
			return client.TargetAnswer{}, err
		}
		return client.TargetAnswer{}, handoff.Errorf(handoff.CodeNotReady, "the attempt is not open")
	}
	if a.decode == nil {
		if err := f.dispatchable(a); err != nil {
			return client.TargetAnswer{}, err
		}
	}
	ans := f.table.Step(f.now(), handoff.TargetInput{Event: handoff.TargetCommit, Attempt: p.Attempt, D: p.D, Token: token, Lease: lease})
	if err := ans.Err(); err != nil {
		return client.TargetAnswer{}, err
	}
	if ans.Changed {
		f.dispatch(a)
	}
	return client.TargetAnswer{State: ans.State, Token: ans.Token}, nil
}

// dispatchable is the last look before D is sent the request.
func (f *Fleet) dispatchable(a *attempt) error {
	if !a.sealed() {
		return handoff.Errorf(handoff.CodeNotReady, "P has not answered")
	}
	err := f.leased(a.prefill)
	for _, s := range []*seat{a.d, a.p} {
		if _, _, up := s.known(); err == nil && !up {
			err = handoff.Errorf(handoff.CodeEngine, "%s does not serve", s.id)
		}
	}
	if err != nil {
		f.abandon(a, err)
	}
	return err
}

// Undo closes an uncommitted attempt.
func (d daemon) Undo(ctx context.Context, p handoff.Plan, _ handoff.OperationID, sides client.Sides) (client.CloseAnswer, error) {
	return d.s.f.close(ctx, p, sides, handoff.TargetUndo)
}

// Release ends an attempt whatever its state.
func (d daemon) Release(ctx context.Context, p handoff.Plan, _ handoff.OperationID, sides client.Sides) (client.CloseAnswer, error) {
	return d.s.f.close(ctx, p, sides, handoff.TargetRelease)
}

// Renew prolongs targets. A source has no lease of ours to prolong: P's own
// counts, and D renews it once it has the request.
func (d daemon) Renew(_ context.Context, targets, sources []handoff.Attempt, lease time.Duration) (lost []handoff.Attempt, err error) {
	f := d.s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range targets {
		if f.table.Step(f.now(), handoff.TargetInput{Event: handoff.TargetRenew, Attempt: k, Lease: lease}).Code != handoff.CodeNone {
			lost = append(lost, k)
		}
	}
	for _, k := range sources {
		if f.attempts[k] == nil {
			lost = append(lost, k)
		}
	}
	return lost, nil
}

// Describe tells what is open at this engine.
func (d daemon) Describe(_ context.Context, attempts bool) (*transferv1.Description, error) {
	f := d.s.f
	_, _, up := d.s.known()
	m := &transferv1.Description{Node: string(NodeID), Incarnation: uint64(f.incarnation), PeerAddress: d.s.server.Address(), Ready: up}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.attempts {
		if a.d != d.s || !a.open {
			continue
		}
		m.TargetsLive++
		if attempts {
			m.Targets = append(m.Targets, &transferv1.TargetDescription{Plan: rpc.Plan(a.plan), Blocks: a.blocks})
		}
	}
	return m, nil
}
