package memledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

type registration struct {
	engine ledger.Engine
	since  handoff.Instant
}

// Register implements ledger.Registry.
func (l *Ledger) Register(ctx context.Context, e ledger.Engine, ttl time.Duration) error {
	if err := ledger.ValidateRegistration(e, ttl); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if old, ok := l.engines.get(now, e.ID); ok && old.engine.ProcessIncarnation > e.ProcessIncarnation {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "%s runs as %d", e.ID, old.engine.ProcessIncarnation)
	}
	if s, ok := l.seats.get(now, e.ID); ok {
		if err := l.seats.put(now, e.ID, s, now+ledger.SeatTTL); err != nil {
			return err
		}
	}
	return l.engines.put(now, e.ID, registration{copied(e), now}, now+ttl)
}

// Engines implements ledger.Registry.
func (l *Ledger) Engines(ctx context.Context) ([]ledger.Registered, error) {
	if err := live(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var out []ledger.Registered
	for id := range l.engines.entries {
		r, ok := l.engines.get(now, id)
		if !ok {
			continue
		}
		e := ledger.Registered{Engine: copied(r.engine), Age: now - r.since}
		if s, ok := l.seats.get(now, id); ok {
			s.Expire(now)
			e.Used, e.Promises = s.Used(), uint32(len(s.Entries()))
			e.Built = s.incarnation == r.engine.NodeIncarnation
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b ledger.Registered) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// Deregister implements ledger.Registry.
func (l *Ledger) Deregister(ctx context.Context, engine handoff.EngineID, process handoff.Incarnation) error {
	if err := handoff.ValidateID("engine", string(engine)); err != nil {
		return err
	}
	if err := live(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.engines.get(l.now(), engine); ok && r.engine.ProcessIncarnation <= process {
		l.engines.drop(engine)
	}
	return nil
}

// copied shares nothing with e, so that no caller can change what is registered.
func copied(e ledger.Engine) ledger.Engine {
	e.Layout = slices.Clone(e.Layout)
	e.Described = slices.Clone(e.Described)
	if e.Load != nil {
		load := *e.Load
		e.Load = &load
	}
	return e
}
