package fence

import (
	"slices"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/segment"
)

// target is the memory of one target record, until the engine freed it.
type target struct {
	attempt handoff.Attempt
	engine  *Engine
	slot    uint32
	extents []segment.Extent // empty for an adopted one
	bytes   uint64
	told    handoff.TargetState // what the engine and the page know
	drained chan struct{}       // closed once nothing can write the memory
	landing *Landing            // the pull that writes it, nil when none runs
	pulled  *Pulled             // what the pull did, once validated
	counted bool                // its bytes are in the engine's quarantine
	have    []uint32            // pieces that the engine vouches for, in order
}

// TargetSpec is what an engine opens a target with.
type TargetSpec struct {
	Plan    handoff.Plan
	Shape   handoff.Shape
	Offsets []uint64
	Slot    uint32
	Lease   time.Duration
	Held    []uint32 // pieces that the engine has already, ascending; they are never written
}

// OpenTarget gives the memory to the attempt and answers τ. A repeat must name
// the same memory.
func (c *Core) OpenTarget(e *Engine, s TargetSpec) (handoff.Token, handoff.TargetState, error) {
	extents, err := e.Segment.Extents(s.Shape, s.Offsets)
	if err == nil {
		err = flagpage.Fits(s.Plan)
	}
	if err == nil {
		err = ascend(s.Held, s.Shape.Pieces())
	}
	c.enter()
	defer c.leave()
	a := s.Plan.Attempt
	refused := func(err error) (handoff.Token, handoff.TargetState, error) {
		return handoff.Token{}, handoff.TargetUnknown, c.refused(machineTarget, a, handoff.TargetOpen.String(), err)
	}
	if err != nil {
		return refused(err)
	}
	if e.Segment.IsReadOnly() {
		return refused(handoff.Errorf(handoff.CodeDenied, "the engine sealed its segment against writers: it can only be a source"))
	}
	if err := c.mayOpen(e, s.Plan.D, s.Shape); err != nil {
		return refused(err)
	}
	if err := c.sameMemory(e, s, extents); err != nil {
		return refused(err)
	}
	ans := c.stepTarget(handoff.TargetInput{Event: handoff.TargetOpen, Attempt: a, D: s.Plan.D, Plan: &s.Plan, Shape: &s.Shape, Lease: s.Lease})
	c.settleFamily(a)
	if err := ans.Err(); err != nil {
		return ans.Token, ans.State, err
	}
	if ans.Changed {
		if err := e.Page.Write(s.Slot, flagpage.Entry{Plan: s.Plan, Generation: ans.Token.Generation, Incarnation: c.cfg.Incarnation}); err != nil {
			return ans.Token, ans.State, err // not reached: the plan fits
		}
		c.hold(&target{attempt: a, engine: e, slot: s.Slot, extents: extents, bytes: s.Shape.Bytes(), told: ans.State, have: slices.Clone(s.Held)})
	}
	return ans.Token, ans.State, nil
}

// sameMemory refuses a repeat with other memory, and a slot that is in use.
func (c *Core) sameMemory(e *Engine, s TargetSpec, extents []segment.Extent) error {
	if s.Slot >= e.Page.Slots() {
		return handoff.Errorf(handoff.CodeInvalid, "flag slot %d of %d", s.Slot, e.Page.Slots())
	}
	a := s.Plan.Attempt
	if t := c.held[a]; t != nil {
		adopted := t.extents == nil
		if t.engine != e || t.slot != s.Slot || !adopted && !(slices.Equal(t.extents, extents) && slices.Equal(t.have, s.Held)) {
			return handoff.Errorf(handoff.CodeConflict, "the target is open with other memory")
		}
		return nil
	}
	if other, used := e.slots[s.Slot]; used {
		return handoff.Errorf(handoff.CodeConflict, "flag slot %d belongs to %s", s.Slot, other)
	}
	return nil
}

// ascend refuses held pieces that are no set of the shape's pieces, and all of
// them: a target without anything to read proves nothing of its source.
func ascend(held []uint32, pieces uint32) error {
	if uint32(len(held)) >= pieces {
		return handoff.Errorf(handoff.CodeInvalid, "%d of %d pieces are held: nothing is left to read", len(held), pieces)
	}
	for i, p := range held {
		if p >= pieces || i > 0 && p <= held[i-1] {
			return handoff.Errorf(handoff.CodeInvalid, "held piece %d: want ascending pieces below %d", p, pieces)
		}
	}
	return nil
}

func (c *Core) hold(t *target) {
	t.drained = make(chan struct{})
	c.held[t.attempt] = t
	t.engine.slots[t.slot] = t.attempt
	t.engine.entries++
}

// settleFamily acts on lower epochs that an open superseded.
func (c *Core) settleFamily(a handoff.Attempt) {
	if a.Epoch == 1 {
		return
	}
	for k := range c.held {
		if k.Handoff == a.Handoff && k != a {
			c.settleTarget(k)
		}
	}
}

// settleTarget acts on what an event changed: the flag page first, then the
// engine, then whoever waits. It is called with the same state any number of times.
func (c *Core) settleTarget(a handoff.Attempt) {
	r, t := c.targets.Get(a), c.held[a]
	if r == nil {
		return
	}
	if t == nil {
		if r.Freed && r.Generation == 0 && r.Plan.BodyDigest.IsZero() {
			c.retire(a, false) // a tombstone was just set
		}
		return
	}
	moved := r.State != t.told
	if moved {
		c.tell(t, r)
	}
	if over := r.Quarantined(); over != t.counted {
		t.counted = over
		if over {
			t.engine.quarantined += t.bytes
		} else {
			t.engine.quarantined -= t.bytes
		}
	}
	drainedNow := r.Drained() && !isClosed(t.drained)
	if drainedNow {
		close(t.drained)
	}
	if moved && r.State >= handoff.TargetCommitted || drainedNow {
		n := Notice{Attempt: a, Cause: r.Cause, Drained: r.Drained()}
		if moved {
			n.Target = r.State
		}
		t.engine.Notify(n)
	}
	if t.engine.gone && r.Drained() {
		c.mustFree(c.freeTarget(t)) // nobody is left to take the blocks back
	}
}

// tell marks the flag page and stops the pull of a target that is over.
func (c *Core) tell(t *target, r *handoff.Target) {
	t.told = r.State
	switch {
	case r.State == handoff.TargetCommitted:
		t.engine.Page.Set(t.slot, flagpage.Visible)
		c.totals.committed++
		c.totals.committedBytes += t.bytes
	case r.State.Final():
		t.engine.Page.Set(t.slot, flagpage.Over)
		if t.landing != nil {
			t.landing.stop()
		}
	}
}

func isClosed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Commit makes a validated target visible, once.
func (c *Core) Commit(p handoff.Plan, token handoff.Token, lease time.Duration) (handoff.TargetAnswer, error) {
	c.enter()
	defer c.leave()
	if err := c.targetServed(p); err != nil {
		return handoff.TargetAnswer{}, c.refused(machineTarget, p.Attempt, handoff.TargetCommit.String(), err)
	}
	ans := c.stepTarget(handoff.TargetInput{Event: handoff.TargetCommit, Attempt: p.Attempt, D: p.D, Token: token, Lease: lease})
	return ans, ans.Err()
}

// targetServed checks that the engine's page is adopted and that the plan is the
// one that the target was opened under (rule 1).
func (c *Core) targetServed(p handoff.Plan) error {
	if p.D.Node == c.cfg.Node {
		if err := c.serves(p.D.Engine); err != nil {
			return err
		}
	}
	if r := c.targets.Get(p.Attempt); r != nil && !r.Plan.BodyDigest.IsZero() && r.Plan != p {
		return handoff.Errorf(handoff.CodeConflict, "this attempt has another plan")
	}
	return nil
}

var anothersTarget = handoff.Errorf(handoff.CodeDenied, "the target is another engine's")

// FinishTarget is the engine's word that the decode is over.
func (c *Core) FinishTarget(e *Engine, a handoff.Attempt) error {
	c.enter()
	defer c.leave()
	if t := c.held[a]; t != nil && t.engine != e {
		return c.refused(machineTarget, a, handoff.TargetFinish.String(), anothersTarget)
	}
	return c.stepTarget(handoff.TargetInput{Event: handoff.TargetFinish, Attempt: a}).Err()
}

// FreedTarget is the engine's word that it took the blocks back; unknown and
// freed ones are no news.
func (c *Core) FreedTarget(e *Engine, a handoff.Attempt) error {
	c.enter()
	defer c.leave()
	t := c.held[a]
	switch {
	case t == nil:
		return nil
	case t.engine != e:
		return c.refused(machineTarget, a, "free", anothersTarget)
	}
	return c.freeTarget(t)
}

func (c *Core) freeTarget(t *target) error {
	if err := c.targets.Free(t.attempt); err != nil {
		return err
	}
	delete(c.held, t.attempt)
	delete(t.engine.slots, t.slot)
	t.engine.Page.Set(t.slot, flagpage.Empty)
	t.engine.entries--
	c.retire(t.attempt, false)
	c.reap(t.engine)
	return nil
}

// mustFree tells loudly of what the table cannot refuse: drained was checked.
func (c *Core) mustFree(err error) {
	if err != nil {
		c.emit(Event{Machine: "engine", Name: "free", To: err.Error(), Code: handoff.CodeInternal})
	}
}

// refused counts a refusal that no table made of what was asked for an attempt, and
// tells of it.
func (c *Core) refused(machine string, a handoff.Attempt, asked string, err error) error {
	return c.told(Event{Machine: machine, Attempt: a, Name: "refuse-" + asked}, err)
}

func (c *Core) told(e Event, err error) error {
	e.Code = handoff.CodeOf(err)
	c.refusals[e.Code]++
	c.emit(e)
	return err
}
