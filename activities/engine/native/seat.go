package native

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

// seat is one engine: the server, what is known of it, and whether it serves.
type seat struct {
	f      *Fleet
	url    string
	id     handoff.EngineID
	server *vllm.Server
	role   engine.Role

	mu     sync.Mutex
	up     bool
	facts  vllm.Facts
	sample vllm.Sample // the last good one; zero: none yet
	misses int
	scrape *scrape // under way
	window window
	from   map[*seat]lives // P that this D has fetched from
}

func (s *seat) side() vllm.Side {
	if s.role.Has(engine.RoleDecode) {
		return vllm.SideD
	}
	return vllm.SideP
}

// watch reads the engine's metrics until ctx ends, and announces it while it serves.
func (s *seat) watch(ctx context.Context) {
	t := time.NewTicker(s.f.config.Refresh)
	defer t.Stop()
	for {
		s.look(ctx)
		select {
		case <-ctx.Done():
			s.withdraw(context.WithoutCancel(ctx))
			return
		case <-t.C:
		}
	}
}

// hold has the engine looked at the moment its process dies, so that no prefill
// runs for a D that died since the last look.
func (s *seat) hold(ctx context.Context) {
	t := time.NewTicker(s.f.config.Refresh) // bounds how often one that closes at once is asked
	defer t.Stop()
	for {
		s.server.Hold(ctx)
		if ctx.Err() != nil {
			return
		}
		s.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (s *seat) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	was, _, up := s.known()
	now, err := s.fresh(ctx)
	if err != nil {
		return // fresh has noted it
	}
	if !up || sameLife(was, now) != nil {
		// A new life may serve other weights: it is asked before anything is sent.
		facts, err := s.server.Facts(ctx, s.side())
		if err != nil {
			s.missed(err)
			return
		}
		s.came(facts)
	}
	s.announce(ctx)
}

// known is what the last look told.
func (s *seat) known() (vllm.Sample, vllm.Facts, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sample, s.facts, s.up
}

func (s *seat) came(facts vllm.Facts) {
	defer s.f.gate.moved()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		s.f.config.Log.Info("engine serves", "engine", s.id, "model", facts.Model, "revision", facts.Revision())
	}
	s.facts, s.up, s.misses, s.window = facts, true, 0, window{}
}

// missed notes an unanswered question. A refused connection is believed at once.
func (s *seat) missed(err error) {
	var failure *vllm.Failure
	gone := errors.As(err, &failure) && failure.Down
	s.mu.Lock()
	s.misses++
	lost := s.up && (gone || s.misses >= missesToDown)
	if lost {
		s.up = false
	}
	s.mu.Unlock()
	if lost {
		s.lost(err)
	}
}

// lost takes the engine out: nothing new is placed there, and what has not been
// committed to it is given up now, before a prefill runs for nothing.
func (s *seat) lost(err error) {
	s.f.config.Log.Warn("engine is gone", "engine", s.id, "error", err.Error())
	ctx, cancel := context.WithTimeout(s.f.life, askTimeout)
	defer cancel()
	s.withdraw(ctx)
	s.f.abandonAt(s, handoff.Errorf(handoff.CodeEngine, "%s %s is gone", s.side(), s.id))
}

func (s *seat) withdraw(ctx context.Context) {
	if err := s.f.config.Registry.Deregister(ctx, s.id, s.f.incarnation); err != nil {
		s.f.config.Log.Warn("an engine stays announced until its registration ends", "engine", s.id, "error", err.Error())
	}
}

// announce is the heartbeat of the registration.
func (s *seat) announce(ctx context.Context) {
	d := s.description()
	role := map[engine.Role]ledger.Role{engine.RolePrefill: ledger.RolePrefill, engine.RoleDecode: ledger.RoleDecode, engine.RoleBoth: ledger.RoleBoth}
	layout := s.f.layout()
	e := ledger.Engine{ID: s.id, Role: role[s.role], Model: d.Model, Revision: d.Revision, Layout: layout[:],
		Node: NodeID, NodeIncarnation: s.f.incarnation, ProcessIncarnation: s.f.incarnation,
		Address: s.url, Control: controlPrefix + s.url, Peer: s.server.Address(),
		Blocks: d.Blocks, BlockTokens: d.BlockTokens, MaxTokens: d.ContextTokens,
		Load: &ledger.Load{BlocksFree: d.BlocksFree, Running: d.Running, Waiting: d.Waiting}}
	if err := s.f.config.Registry.Register(ctx, e, 4*s.f.config.Refresh+time.Second); err != nil {
		s.f.config.Log.Warn("an engine was not announced", "engine", s.id, "error", err.Error())
	}
}

// description is what is known of the engine. Where it does not tell its blocks,
// one block is a whole context, so that promises count requests.
func (s *seat) description() engine.Description {
	sample, facts, _ := s.known()
	value := func(name string) float64 { v, _ := sample.Value(name); return v }
	d := engine.Description{Engine: s.id, Role: s.role, Model: facts.Model, Revision: revision(facts), Layout: s.f.layout(),
		Address: s.url, Process: s.f.incarnation, Node: NodeID, Incarnation: s.f.incarnation, Control: controlPrefix + s.url,
		BlockTokens: sample.BlockTokens, Blocks: sample.Blocks, ContextTokens: facts.Context,
		Running: uint32(value(vllm.MetricRunning)), Waiting: uint32(value(vllm.MetricWaiting))}
	if d.ContextTokens == 0 {
		d.ContextTokens = unknownLength
	}
	if d.Blocks == 0 || d.BlockTokens == 0 {
		d.BlockTokens, d.Blocks = d.ContextTokens, unknownBlocks
	}
	d.BlocksFree = uint32(float64(d.Blocks) * (1 - min(1, max(0, value(vllm.MetricUsage)))))
	return d
}

func revision(f vllm.Facts) string {
	r := f.Revision()
	return r[max(0, len(r)-handoff.MaxNameBytes):]
}

// Describe implements engine.Engine.
func (s *seat) Describe(context.Context) (engine.Description, error) {
	if _, _, up := s.known(); !up {
		return engine.Description{}, handoff.Errorf(handoff.CodeUnavailable, "engine %s does not serve", s.id)
	}
	return s.description(), nil
}
