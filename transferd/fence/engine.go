package fence

import (
	"slices"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/segment"
)

// Notice tells an engine what became of one of its attempts. State is unknown
// when only the drain is news.
type Notice struct {
	Attempt  handoff.Attempt
	IsSource bool
	Target   handoff.TargetState
	Source   handoff.SourceState
	Cause    handoff.Code
	Drained  bool
}

// Engine is one attached engine. Its creator fills the first block; the core
// owns the rest.
type Engine struct {
	ID       handoff.EngineID
	Revision string
	Layout   handoff.Digest
	// Described is what Layout stands for, Encoded the same for a peer; nil when the
	// engine did not say: then only equal layouts are moved.
	Described *layout.Described
	Encoded   []byte
	Segment   *segment.Segment
	Page      *flagpage.Page
	Notify    func(Notice) // must not block
	Close     func() error // unmaps segment and page; called once, when nothing can touch them

	gone        bool
	slots       map[uint32]handoff.Attempt
	tenants     map[uint32]*tenancy // of pinned blocks
	entries     int                 // targets and sources that are not freed
	quarantined uint64              // bytes that are over and not drained
}

// Attached says what became of the targets of an engine's flag page (rule 9).
type Attached struct{ Adopted, Closed []handoff.Attempt }

// Attach adopts the engine's flag page and lets it open targets and sources. An
// engine of that name that is still attached, or whose memory is not drained
// yet, refuses it; the caller then still owns the memory of e.
func (c *Core) Attach(e *Engine) (Attached, error) {
	c.enter()
	defer c.leave()
	switch {
	case c.draining:
		return Attached{}, handoff.Errorf(handoff.CodeUnavailable, "the daemon is stopping")
	case c.engines[e.ID] != nil:
		return Attached{}, handoff.Errorf(handoff.CodeConflict, "engine %s is attached already", e.ID)
	case c.leaving[e.ID] > 0:
		return Attached{}, handoff.Errorf(handoff.CodeNotReady, "engine %s left memory that is not drained yet", e.ID)
	case len(c.engines) >= MaxEngines:
		return Attached{}, handoff.Errorf(handoff.CodeCapacity, "%d engines are attached, limit %d", len(c.engines), MaxEngines)
	}
	found, err := c.survey(e.Page)
	if err != nil {
		return Attached{}, err
	}
	e.slots = map[uint32]handoff.Attempt{}
	var out Attached
	for _, f := range found {
		if !f.visible {
			out.Closed = append(out.Closed, f.Plan.Attempt)
			e.Page.Set(f.slot, flagpage.Over)
			continue
		}
		c.targets.Adopt(c.now(), handoff.Adopted{Plan: f.Plan, Generation: f.Generation})
		c.hold(&target{attempt: f.Plan.Attempt, engine: e, slot: f.slot, told: handoff.TargetCommitted})
		c.traceTarget(f.Plan.Attempt, "adopt", handoff.TargetUnknown, handoff.CodeNone)
		out.Adopted = append(out.Adopted, f.Plan.Attempt)
	}
	c.engines[e.ID] = e
	c.attached[e.ID] = true
	delete(c.awaited, e.ID)
	return out, nil
}

type found struct {
	flagpage.Entry
	slot    uint32
	visible bool
}

// survey reads a flag page before anything is changed. A visible slot that
// cannot be read, or that contradicts what this life answered, is refused: the
// engine may be decoding what we would call closed.
func (c *Core) survey(page *flagpage.Page) ([]found, error) {
	var out []found
	seen := map[handoff.Attempt]bool{}
	for i := range page.Slots() {
		state := page.State(i)
		if state == flagpage.Empty {
			continue
		}
		entry, ok := page.Read(i)
		a := entry.Plan.Attempt
		if !ok || entry.Plan.Validate() != nil || entry.Plan.D.Node != c.cfg.Node {
			if state == flagpage.Visible {
				return nil, handoff.Errorf(handoff.CodeInternal, "flag slot %d is visible but damaged", i)
			}
			continue
		}
		visible := state == flagpage.Visible
		switch r := c.targets.Get(a); {
		case visible && r != nil && r.State == handoff.TargetAborted:
			visible = false // it was visible in this life and ended while the engine was away
		case visible && (r != nil || seen[a] || entry.Incarnation >= c.cfg.Incarnation):
			return nil, handoff.Errorf(handoff.CodeInternal, "flag slot %d shows %s, of incarnation %d, which this life does not know as committed", i, a, entry.Incarnation)
		}
		seen[a] = true
		out = append(out, found{entry, i, visible})
	}
	return out, nil
}

// Detach is the engine's death: its memory goes away with it. Everything that it
// had open is closed, committed targets are aborted; the mappings go when the
// last posted operation has ended (T-19).
func (c *Core) Detach(e *Engine) {
	c.enter()
	defer c.leave()
	if c.engines[e.ID] != e {
		return
	}
	delete(c.engines, e.ID)
	e.gone = true
	c.leaving[e.ID]++
	for _, t := range c.held {
		if t.engine != e {
			continue
		}
		c.stepTarget(handoff.TargetInput{Event: handoff.TargetAbandon, Attempt: t.attempt, Cause: handoff.CodeEngine})
		c.stepTarget(handoff.TargetInput{Event: handoff.TargetFinish, Attempt: t.attempt}) // a committed one
		c.settleTarget(t.attempt)
	}
	for _, s := range c.lent {
		if s.engine == e {
			c.stepSource(handoff.SourceInput{Event: handoff.SourcePreempt, Attempt: s.attempt, Cause: handoff.CodeEngine})
			c.settleSource(s.attempt)
		}
	}
	c.reap(e)
}

// reap unmaps a gone engine's memory once nothing of it is held.
func (c *Core) reap(e *Engine) {
	if !e.gone || e.entries > 0 || e.Close == nil {
		return
	}
	closeMemory := e.Close
	e.Close = nil
	if c.leaving[e.ID]--; c.leaving[e.ID] == 0 {
		delete(c.leaving, e.ID)
	}
	if err := closeMemory(); err != nil {
		c.emit(Event{Machine: "engine", Name: "unmap", To: string(e.ID), Code: handoff.CodeInternal})
	}
}

// Engines lists who is attached.
func (c *Core) Engines() []handoff.EngineID {
	c.enter()
	defer c.leave()
	ids := make([]handoff.EngineID, 0, len(c.engines))
	for id := range c.engines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// IsReady says whether an engine is attached and none of the life before is
// still missing. A missing one is given up after a lease: what it had visible
// is not known here then, and every operation on it is refused by incarnation.
func (c *Core) IsReady() bool {
	c.enter()
	defer c.leave()
	return c.isReady()
}

func (c *Core) isReady() bool {
	return len(c.engines) > 0 && !c.draining && (len(c.awaited) == 0 || c.now() > c.cfg.Lease)
}

// serves refuses an operation on an engine's attempts before its flag page was
// adopted in this life (rule 9).
func (c *Core) serves(id handoff.EngineID) error {
	if c.attached[id] {
		return nil
	}
	return handoff.Errorf(handoff.CodeUnavailable, "engine %s has not attached to this daemon yet", id)
}

// mayOpen checks what the tables do not know: the engine, its model and the
// quarantine bound (rule 21).
func (c *Core) mayOpen(e *Engine, seat handoff.Seat, shape handoff.Shape) error {
	limit := c.cfg.QuarantineMax
	if limit == 0 {
		limit = e.Segment.Bytes() / quarantineShare
	}
	switch {
	case e.gone || c.engines[e.ID] != e:
		return handoff.Errorf(handoff.CodeEngine, "the engine is gone")
	case c.draining:
		return handoff.Errorf(handoff.CodeUnavailable, "the daemon is stopping")
	case seat.Engine != e.ID:
		return handoff.Errorf(handoff.CodeDenied, "the plan's engine is %s, this is %s", seat.Engine, e.ID)
	case shape.Revision != e.Revision:
		return handoff.Errorf(handoff.CodeMismatch, "revision %q, the engine has %q", shape.Revision, e.Revision)
	case shape.Layout != e.Layout:
		return handoff.Errorf(handoff.CodeMismatch, "layout %s, the engine has %s", shape.Layout, e.Layout)
	case e.quarantined > limit:
		return handoff.Errorf(handoff.CodeCapacity, "%d bytes are quarantined, limit %d", e.quarantined, limit)
	}
	return nil
}
