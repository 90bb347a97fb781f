package fence

import (
	"slices"
	"time"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/segment"
)

// source is the memory of one source record, until the engine freed it.
type source struct {
	attempt    handoff.Attempt
	engine     *Engine
	extents    []segment.Extent
	blocks     []uint32
	bytes      uint64
	grant      handoff.GrantID
	capability []byte
	told       handoff.SourceState
	drained    chan struct{}
	reading    *Reading // the connection that reads it, nil when none
	counted    bool
	trace      string
	tenant     handoff.Digest // zero: its engine did not say
}

// SourceSpec is what an engine opens a source with.
type SourceSpec struct {
	Plan    handoff.Plan
	Shape   handoff.Shape
	Offsets []uint64
	Blocks  []uint32 // physical blocks pinned under the grant (rule 15)
	Lease   time.Duration
	Trace   string         // traceparent of the prefill; no decision looks at it
	Tenant  handoff.Digest // whose state it is; zero: not said
}

// SourceGrant is the right that a source's plan gives to its D.
type SourceGrant struct {
	Capability []byte
	Grant      handoff.GrantID
	State      handoff.SourceState
}

// OpenSource grants the plan's D to read the pieces once announced. A repeat
// must name the same memory and gets the same capability.
func (c *Core) OpenSource(e *Engine, s SourceSpec) (SourceGrant, error) {
	extents, err := e.Segment.Extents(s.Shape, s.Offsets)
	if err == nil && len(s.Blocks) > handoff.MaxPieces {
		err = handoff.Errorf(handoff.CodeTooLarge, "%d blocks, limit %d", len(s.Blocks), handoff.MaxPieces)
	}
	c.enter()
	defer c.leave()
	a := s.Plan.Attempt
	refused := func(err error) (SourceGrant, error) {
		return SourceGrant{}, c.refused(machineSource, a, handoff.SourceOpen.String(), err)
	}
	if err != nil {
		return refused(err)
	}
	if err := c.mayOpen(e, s.Plan.P, s.Shape); err != nil {
		return refused(err)
	}
	if l := c.lent[a]; l != nil && (l.engine != e || !slices.Equal(l.extents, extents) || !slices.Equal(l.blocks, s.Blocks)) {
		return refused(handoff.Errorf(handoff.CodeConflict, "the source is open with other memory"))
	}
	if b, ok := e.foreign(s); ok && c.lent[a] == nil {
		return SourceGrant{}, c.crossing(a, handoff.Errorf(handoff.CodeDenied, "block %d is pinned for another tenant", b))
	}
	ans := c.stepSource(handoff.SourceInput{Event: handoff.SourceOpen, Attempt: a, P: s.Plan.P, Plan: &s.Plan, Shape: &s.Shape, Lane: handoff.LaneServed, Lease: s.Lease})
	if err := ans.Err(); err != nil {
		return SourceGrant{State: ans.State}, err
	}
	if ans.Changed {
		l := &source{attempt: a, engine: e, extents: extents, blocks: s.Blocks, bytes: s.Shape.Bytes(), grant: ans.Grant, trace: s.Trace, tenant: s.Tenant, told: ans.State, drained: make(chan struct{})}
		if l.capability, err = c.mint(s, ans.Grant); err != nil {
			return SourceGrant{}, err // not reached: plan and shape are valid
		}
		c.lend(l)
	}
	l := c.lent[a]
	if l == nil {
		return SourceGrant{State: ans.State}, handoff.Errorf(handoff.CodeInternal, "a live source without memory")
	}
	return SourceGrant{Capability: l.capability, Grant: ans.Grant, State: ans.State}, nil
}

func (c *Core) mint(s SourceSpec, g handoff.GrantID) ([]byte, error) {
	return capability.Mint(c.key, capability.Right{Grant: g, Attempt: s.Plan.Attempt, Source: c.cfg.Node, Incarnation: c.cfg.Incarnation,
		Holder: s.Plan.D.Node, Direction: capability.DirectionRead, Pieces: capability.Range{To: s.Shape.Pieces()}, Expiry: c.now() + CapabilityLife})
}

func (c *Core) lend(l *source) {
	c.lent[l.attempt] = l
	l.engine.entries++
	for _, b := range l.blocks {
		c.pins.Pin(b, l.grant)
		l.engine.occupy(b, l.tenant)
	}
	if w := c.arrivals[l.attempt]; w != nil {
		close(w.opened)
		delete(c.arrivals, l.attempt)
	}
}

// Announce records pieces as written for good, and tells the reader.
func (c *Core) Announce(e *Engine, a handoff.Attempt, pieces, digests []uint32) error {
	if len(pieces) != len(digests) || len(pieces) > handoff.MaxPieces {
		return handoff.Errorf(handoff.CodeInvalid, "%d pieces with %d digests, limit %d", len(pieces), len(digests), handoff.MaxPieces)
	}
	c.enter()
	defer c.leave()
	l, err := c.ownSource(e, a, handoff.SourceAnnounce)
	if err != nil {
		return err
	}
	for i, p := range pieces {
		if err := c.stepSource(handoff.SourceInput{Event: handoff.SourceAnnounce, Attempt: a, Piece: p, Digest: digests[i]}).Err(); err != nil {
			return err
		}
	}
	if l.reading != nil {
		l.reading.announced(wire.Runs(pieces))
	}
	return nil
}

// ownSource finds a source of this engine, or refuses what it asks for.
func (c *Core) ownSource(e *Engine, a handoff.Attempt, asked handoff.SourceEvent) (*source, error) {
	l := c.lent[a]
	var err error
	switch {
	case l == nil && c.sources.Get(a) != nil:
		err = handoff.Errorf(handoff.CodeClosed, "the source is closed and freed")
	case l == nil:
		err = handoff.Errorf(handoff.CodeNotReady, "no source %s", a)
	case l.engine != e:
		err = anothersSource
	default:
		return l, nil
	}
	return nil, c.refused(machineSource, a, asked.String(), err)
}

var anothersSource = handoff.Errorf(handoff.CodeDenied, "the source is another engine's")

// Seal freezes the manifest: every piece is announced.
func (c *Core) Seal(e *Engine, a handoff.Attempt) error {
	c.enter()
	defer c.leave()
	l, err := c.ownSource(e, a, handoff.SourceSeal)
	if err != nil {
		return err
	}
	if err := c.stepSource(handoff.SourceInput{Event: handoff.SourceSeal, Attempt: a}).Err(); err != nil {
		return err
	}
	if l.reading != nil {
		l.reading.wake()
	}
	return nil
}

// CloseSource is the engine's word that it drops or rewrites the state (rule 11).
func (c *Core) CloseSource(e *Engine, a handoff.Attempt, cause handoff.Code) error {
	c.enter()
	defer c.leave()
	if _, err := c.ownSource(e, a, handoff.SourcePreempt); err != nil {
		return err
	}
	return c.stepSource(handoff.SourceInput{Event: handoff.SourcePreempt, Attempt: a, Cause: cause}).Err()
}

// FreedSource is the engine's word that it took the blocks back.
func (c *Core) FreedSource(e *Engine, a handoff.Attempt) error {
	c.enter()
	defer c.leave()
	l := c.lent[a]
	switch {
	case l == nil:
		return nil
	case l.engine != e:
		return c.refused(machineSource, a, "free", anothersSource)
	}
	return c.freeSource(l)
}

func (c *Core) freeSource(l *source) error {
	if err := c.sources.Free(l.attempt); err != nil {
		return err
	}
	delete(c.lent, l.attempt)
	l.engine.entries--
	c.retire(l.attempt, true)
	c.reap(l.engine)
	return nil
}

// settleSource acts on what an event changed.
func (c *Core) settleSource(a handoff.Attempt) {
	r, l := c.sources.Get(a), c.lent[a]
	if r == nil {
		return
	}
	if l == nil {
		if r.Freed && r.Grant == 0 {
			c.retire(a, true) // a tombstone was just set
			if w := c.arrivals[a]; w != nil {
				close(w.opened) // whoever waits learns that it is closed
				delete(c.arrivals, a)
			}
		}
		return
	}
	closed := r.State == handoff.SourceClosed && l.told != handoff.SourceClosed
	l.told = r.State
	if closed && l.reading != nil {
		l.reading.stop()
	}
	if over := r.Quarantined(); over != l.counted {
		l.counted = over
		if over {
			l.engine.quarantined += l.bytes
		} else {
			l.engine.quarantined -= l.bytes
		}
	}
	drainedNow := r.Drained() && !isClosed(l.drained)
	if drainedNow {
		close(l.drained)
		for _, b := range l.blocks {
			c.pins.Unpin(b, l.grant)
			l.engine.vacate(b)
		}
	}
	if closed || drainedNow {
		n := Notice{Attempt: a, IsSource: true, Cause: r.Cause, Drained: r.Drained()}
		if closed {
			n.Source = r.State
		}
		l.engine.Notify(n)
	}
	if l.engine.gone && r.Drained() {
		c.mustFree(c.freeSource(l))
	}
}

// arrival is where pulls wait for a source to open: the capability may reach D
// before P's daemon has answered its engine (the rendezvous of V-04).
type arrival struct {
	opened  chan struct{}
	waiting int
}
