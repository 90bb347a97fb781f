package refengine

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// fakeDaemon is a transferd without processes and wires: the protocol's own
// machines decide what is refused, and a pull is a copy. It refuses what a
// faulty engine does (freeing early, rewriting an announced piece).
type fakeDaemon struct {
	t        testing.TB
	node     handoff.NodeID
	memory   []byte
	events   chan client.Event
	detached bool

	mu      sync.Mutex
	inc     handoff.Incarnation
	targets *handoff.Targets
	sources *handoff.Sources
	to      map[handoff.Attempt]client.TargetSpec
	from    map[handoff.Attempt]client.SourceSpec
	visible map[uint32]handoff.Attempt
	slots   map[uint32]handoff.Attempt
	asked   map[handoff.Attempt]bool // targets whose opening was never answered
	refused error                    // of the next opens
}

func newFakeDaemon(t testing.TB, node handoff.NodeID) *fakeDaemon {
	return &fakeDaemon{t: t, node: node, events: make(chan client.Event, 4096), inc: 1, targets: handoff.NewTargets(node, 1), sources: handoff.NewSources(node, 1),
		to: map[handoff.Attempt]client.TargetSpec{}, from: map[handoff.Attempt]client.SourceSpec{}, visible: map[uint32]handoff.Attempt{}, slots: map[uint32]handoff.Attempt{},
		asked: map[handoff.Attempt]bool{}}
}

func (f *fakeDaemon) Node() handoff.NodeID        { return f.node }
func (f *fakeDaemon) PeerAddress() string         { return "127.0.0.1:1" }
func (f *fakeDaemon) PeerProtocol() uint32        { return 0 }
func (f *fakeDaemon) Events() <-chan client.Event { return f.events }
func (f *fakeDaemon) Close() error                { close(f.events); return nil }
func (f *fakeDaemon) Incarnation() handoff.Incarnation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inc
}

// ask runs op under the lock, as one answer of the daemon.
func (f *fakeDaemon) ask(ctx context.Context, op func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.detached || ctx.Err() != nil {
		return handoff.Errorf(handoff.CodeUnavailable, "detached")
	}
	return op()
}

func (f *fakeDaemon) OpenTarget(ctx context.Context, s client.TargetSpec) (token handoff.Token, err error) {
	a := s.Plan.Attempt
	f.mu.Lock()
	f.asked[a] = f.detached
	f.mu.Unlock()
	return token, f.ask(ctx, func() error {
		if f.refused != nil {
			return f.refused
		}
		if other, used := f.slots[s.FlagSlot]; used && other != a {
			return handoff.Errorf(handoff.CodeConflict, "flag slot %d belongs to %s", s.FlagSlot, other)
		}
		ans := f.targets.Step(0, handoff.TargetInput{Event: handoff.TargetOpen, Attempt: a, D: s.Plan.D, Plan: &s.Plan, Shape: &s.Shape})
		if ans.Code == handoff.CodeNone {
			f.to[a], f.slots[s.FlagSlot], token = s, a, ans.Token
		}
		return ans.Err()
	})
}

func (f *fakeDaemon) OpenSource(ctx context.Context, s client.SourceSpec) (g client.SourceGrant, err error) {
	a := s.Plan.Attempt
	return g, f.ask(ctx, func() error {
		if f.refused != nil {
			return f.refused
		}
		ans := f.sources.Step(0, handoff.SourceInput{Event: handoff.SourceOpen, Attempt: a, P: s.Plan.P, Plan: &s.Plan, Shape: &s.Shape})
		if ans.Code == handoff.CodeNone {
			f.from[a] = s
			g = client.SourceGrant{Capability: binary.LittleEndian.AppendUint64(nil, uint64(ans.Grant)), Grant: ans.Grant}
		}
		return ans.Err()
	})
}

func (f *fakeDaemon) Announce(ctx context.Context, a handoff.Attempt, pieces, digests []uint32) error {
	return f.ask(ctx, func() error {
		for i, p := range pieces {
			ans := f.sources.Step(0, handoff.SourceInput{Event: handoff.SourceAnnounce, Attempt: a, Piece: p, Digest: digests[i]})
			if ans.Code != handoff.CodeNone {
				return ans.Err()
			}
		}
		return nil
	})
}

func (f *fakeDaemon) Seal(ctx context.Context, a handoff.Attempt) error {
	return f.ask(ctx, func() error {
		return f.sources.Step(0, handoff.SourceInput{Event: handoff.SourceSeal, Attempt: a}).Err()
	})
}

func (f *fakeDaemon) CloseSource(ctx context.Context, a handoff.Attempt, code handoff.Code) error {
	return f.ask(ctx, func() error {
		return f.stepSource(handoff.SourceInput{Event: handoff.SourcePreempt, Attempt: a, Cause: code})
	})
}

func (f *fakeDaemon) FinishTarget(ctx context.Context, a handoff.Attempt) error {
	return f.ask(ctx, func() error { return f.stepTarget(handoff.TargetInput{Event: handoff.TargetFinish, Attempt: a}) })
}

func (f *fakeDaemon) Freed(ctx context.Context, a handoff.Attempt, source bool) error {
	return f.ask(ctx, func() error {
		if source {
			if _, ok := f.from[a]; !ok {
				return nil
			}
			delete(f.from, a)
			return f.sources.Free(a)
		}
		s, ok := f.to[a]
		if !ok {
			return nil
		}
		delete(f.to, a)
		delete(f.slots, s.FlagSlot)
		return f.targets.Free(a)
	})
}

func (f *fakeDaemon) IsVisible(slot uint32, a handoff.Attempt) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.visible[slot] == a
}

// stepTarget tells the engine what a step changed, as a daemon does.
func (f *fakeDaemon) stepTarget(in handoff.TargetInput) error {
	ans := f.targets.Step(0, in)
	if ans.Code != handoff.CodeNone || !ans.Changed {
		return ans.Err()
	}
	r := f.targets.Get(in.Attempt)
	s, open := f.to[in.Attempt]
	if !open {
		return nil
	}
	ev := client.Event{Attempt: in.Attempt, Cause: r.Cause, Drained: r.Drained()}
	switch ans.State {
	case handoff.TargetCommitted:
		f.visible[s.FlagSlot] = in.Attempt
		ev.Kind = client.TargetCommitted
	case handoff.TargetClosed:
		ev.Kind = client.TargetClosed
	case handoff.TargetAborted:
		delete(f.visible, s.FlagSlot)
		ev.Kind = client.TargetAborted
	default:
		return nil
	}
	f.events <- ev
	if ev.Drained && ev.Kind != client.TargetCommitted {
		ev.Kind = client.TargetDrained
		f.events <- ev
	}
	return nil
}

func (f *fakeDaemon) stepSource(in handoff.SourceInput) error {
	ans := f.sources.Step(0, in)
	if ans.Code != handoff.CodeNone || !ans.Changed || ans.State != handoff.SourceClosed {
		return ans.Err()
	}
	r := f.sources.Get(in.Attempt)
	if _, open := f.from[in.Attempt]; !open {
		return nil
	}
	ev := client.Event{Kind: client.SourceClosed, Attempt: in.Attempt, Cause: r.Cause, Drained: r.Drained()}
	f.events <- ev
	if ev.Drained {
		ev.Kind = client.SourceDrained
		f.events <- ev
	}
	return nil
}

// pull copies every piece of a sealed source, verifies it and asks the question.
func (f *fakeDaemon) pull(p *fakeDaemon, plan handoff.Plan, token handoff.Token) error {
	a := plan.Attempt
	var manifest handoff.Manifest
	for ready := false; !ready; { // wait for the seal
		p.mu.Lock()
		if r := p.sources.Get(a); r != nil {
			manifest, ready = r.Sealed()
		}
		p.mu.Unlock()
		if !ready {
			select {
			case <-f.t.Context().Done():
				return f.t.Context().Err()
			case <-time.After(time.Millisecond):
			}
		}
	}
	p.mu.Lock()
	source, grant := p.from[a], p.sources.Get(a).Grant
	p.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	target := f.to[a]
	if err := manifest.Shape.Match(target.Shape); err != nil {
		return err
	}
	step := func(in handoff.TargetInput) error {
		in.Attempt, in.Token = a, token
		return f.targets.Step(0, in).Err()
	}
	for i := range manifest.Shape.Pieces() {
		place, _ := manifest.Shape.Place(i)
		if err := step(handoff.TargetInput{Event: handoff.TargetPost}); err != nil {
			return err
		}
		landed := f.memory[target.Offsets[i]:][:place.Bytes]
		copy(landed, p.memory[source.Offsets[i]:])
		if client.Checksum(landed) != manifest.Digests[i] {
			return handoff.Errorf(handoff.CodeIntegrity, "piece %d changed after it was announced", i)
		}
		if err := step(handoff.TargetInput{Event: handoff.TargetLand, Piece: i}); err != nil {
			return err
		}
	}
	const question = 7
	digest := manifest.Digest()
	if err := step(handoff.TargetInput{Event: handoff.TargetVerify, Manifest: digest}); err != nil {
		return err
	}
	if err := step(handoff.TargetInput{Event: handoff.TargetAsk, Question: question, Grant: grant}); err != nil {
		return err
	}
	p.mu.Lock()
	yes := p.sources.Step(0, handoff.SourceInput{Event: handoff.SourceQuestion, Attempt: a, P: plan.P, Grant: grant, Manifest: digest, Nonce: question})
	p.mu.Unlock()
	if yes.Code != handoff.CodeNone {
		return yes.Err()
	}
	return step(handoff.TargetInput{Event: handoff.TargetYes, Question: question, Grant: grant, Manifest: digest})
}

func (f *fakeDaemon) commit(plan handoff.Plan, token handoff.Token) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stepTarget(handoff.TargetInput{Event: handoff.TargetCommit, Attempt: plan.Attempt, D: plan.D, Token: token})
}

func (f *fakeDaemon) releaseTarget(plan handoff.Plan) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stepTarget(handoff.TargetInput{Event: handoff.TargetRelease, Attempt: plan.Attempt, D: plan.D})
}

func (f *fakeDaemon) releaseSource(plan handoff.Plan) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stepSource(handoff.SourceInput{Event: handoff.SourceRelease, Attempt: plan.Attempt, P: plan.P})
}

// restart is the daemon's death and its next life: visible targets are adopted,
// all else is over and drained.
func (f *fakeDaemon) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inc++
	targets, sources := handoff.NewTargets(f.node, f.inc), handoff.NewSources(f.node, f.inc)
	back := client.Event{Kind: client.Reattached, Incarnation: f.inc}
	var over []client.Event
	for a, s := range f.to {
		if f.visible[s.FlagSlot] == a {
			targets.Adopt(0, handoff.Adopted{Plan: s.Plan, Generation: f.targets.Get(a).Generation})
			back.Adopted = append(back.Adopted, a)
			continue
		}
		back.Closed = append(back.Closed, a)
		delete(f.to, a)
		delete(f.slots, s.FlagSlot)
		over = append(over, client.Event{Kind: client.TargetClosed, Attempt: a, Cause: handoff.CodeStaleIncarnation}, client.Event{Kind: client.TargetDrained, Attempt: a})
	}
	for a, unanswered := range f.asked {
		if unanswered {
			over = append(over, client.Event{Kind: client.TargetClosed, Attempt: a, Cause: handoff.CodeStaleIncarnation}, client.Event{Kind: client.TargetDrained, Attempt: a})
		}
	}
	clear(f.asked)
	for a := range f.from {
		delete(f.from, a)
		over = append(over, client.Event{Kind: client.SourceClosed, Attempt: a, Cause: handoff.CodeStaleIncarnation}, client.Event{Kind: client.SourceDrained, Attempt: a})
	}
	f.targets, f.sources = targets, sources
	f.events <- client.Event{Kind: client.Detached}
	f.events <- back
	for _, ev := range over {
		f.events <- ev
	}
}
