package native

import (
	"context"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
)

// Reserve looks whether D is there, serves what P serves and has room, and opens
// the target. D itself holds nothing before the request comes: that it is full
// all the same is found at the dispatch, and costs the prefill.
//
// Idempotent: the open target answers its own token.
func (s *seat) Reserve(ctx context.Context, r engine.Reservation) (engine.Reserved, error) {
	a, err := s.f.hold(r.Plan)
	if err != nil {
		return engine.Reserved{}, err
	}
	if err := s.fits(ctx, a, r); err != nil {
		s.f.give(a, err)
		return engine.Reserved{}, err
	}
	d := s.description()
	shape := handoff.Shape{Revision: d.Revision, Layout: s.f.layout(), Tokens: min(max(1, r.PromptTokens), handoff.MaxPromptTokens),
		Items: []handoff.Item{{Class: "transfer-parameters", Bytes: 1}}}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !a.open {
		if err := s.room(a, r, d); err != nil {
			s.f.abandon(a, err)
			return engine.Reserved{}, err
		}
	}
	ans := s.f.table.Step(s.f.now(), handoff.TargetInput{Event: handoff.TargetOpen, Attempt: r.Plan.Attempt, D: r.Plan.D, Plan: &r.Plan, Shape: &shape, Lease: r.Lease})
	if err := ans.Err(); err != nil {
		return engine.Reserved{}, err
	}
	a.blocks = (r.PromptTokens + r.Sampling.MaxTokens + d.BlockTokens - 1) / d.BlockTokens
	if !a.open {
		a.open = true
		close(a.reserved)
	}
	return engine.Reserved{Token: ans.Token, Blocks: a.blocks}, nil
}

// fits compares the pair, before anything is computed.
func (s *seat) fits(ctx context.Context, a *attempt, r engine.Reservation) error {
	if s != a.d {
		return handoff.Errorf(handoff.CodeInvalid, "the plan decodes on another engine")
	}
	_, p, pUp := a.p.known()
	_, d, dUp := s.known()
	switch {
	case !dUp:
		return handoff.Errorf(handoff.CodeEngine, "D %s does not serve", s.id)
	case !pUp:
		return handoff.Errorf(handoff.CodeEngine, "P %s does not serve", a.p.id)
	case p.Model != d.Model || revision(p) != revision(d):
		return handoff.Errorf(handoff.CodeMismatch, "P serves %s of %s, D %s of %s", p.Model, revision(p), d.Model, revision(d))
	case r.Revision != "" && r.Revision != revision(d):
		return handoff.Errorf(handoff.CodeMismatch, "D serves %s, the plan is for %s", revision(d), r.Revision)
	}
	_, err := s.recent(ctx, 2*s.f.config.Refresh)
	return err
}

// room says whether D could take one more. The caller holds the fleet's lock.
func (s *seat) room(a *attempt, r engine.Reservation, d engine.Description) error {
	fam := s.f.family(a.plan.Attempt.Handoff)
	if fam.final != nil {
		return fam.final
	}
	open, ours := 0, 0
	for _, x := range s.f.attempts {
		if x.d == s && x.open {
			open++
			if x.decode != nil && !x.decode.token {
				ours++ // they wait at D as well, until their state is there
			}
		}
	}
	need := (r.PromptTokens + r.Sampling.MaxTokens + d.BlockTokens - 1) / d.BlockTokens
	switch limit := s.limit(); {
	case limit > 0 && open >= limit:
		return handoff.Errorf(handoff.CodeCapacity, "D %s runs %d requests, its limit is %d", s.id, open, limit)
	case int(d.Waiting)-ours > s.f.config.Waiting:
		return handoff.Errorf(handoff.CodeCapacity, "at D %s %d requests wait", s.id, d.Waiting)
	case need > d.BlocksFree:
		return handoff.Errorf(handoff.CodeCapacity, "D %s has %d blocks free of %d, %d are needed", s.id, d.BlocksFree, d.Blocks, need)
	}
	return nil
}

// give ends an attempt that was refused before its target was open.
func (f *Fleet) give(a *attempt, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if handoff.CodeOf(err).Advice() != handoff.RetrySame {
		f.abandon(a, err)
	}
}

// abandon closes an uncommitted attempt for a cause of ours. The caller holds the
// lock. A committed one stays: only its end or a release ends it.
func (f *Fleet) abandon(a *attempt, cause error) {
	k := a.plan.Attempt
	t := f.table.Get(k)
	switch {
	case t == nil: // never opened: a tombstone, so that nobody opens it now
		f.table.Step(f.now(), handoff.TargetInput{Event: handoff.TargetUndo, Attempt: k, D: a.plan.D})
	case t.State != handoff.TargetCommitted:
		f.table.Step(f.now(), handoff.TargetInput{Event: handoff.TargetAbandon, Attempt: k, Cause: handoff.CodeOf(cause)})
	default:
		return
	}
	f.over(k, cause)
}

// abandonAt gives up what would need an engine that is gone.
func (f *Fleet) abandonAt(s *seat, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.attempts {
		if a.d == s || a.p == s && !a.sealed() {
			f.abandon(a, cause)
		}
	}
}

func (a *attempt) sealed() bool {
	if a.prefill == nil {
		return false
	}
	select {
	case <-a.prefill.done:
		return a.prefill.err == nil
	default:
		return false
	}
}

var _ engine.Engine = (*seat)(nil)

// risen says how P's count of lapsed leases moved between two samples: up when it
// rose, known when the engine tells it. Nothing else of P lets go of what it pinned
// for an attempt that may still be delivered. P's count of fetches after the end is
// not asked: each is of a lapse that was counted before, or of a transfer whose end
// P was told twice, and then every hand-off beside it would look stale for nothing.
func risen(before, after vllm.Sample) (up, known bool) {
	b, ok1 := before.Value(vllm.MetricExpired)
	a, ok2 := after.Value(vllm.MetricExpired)
	return ok1 && ok2 && a > b, ok1 && ok2
}
