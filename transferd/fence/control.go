package fence

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Sides says which sides of an attempt an operation is for.
type Sides struct{ Target, Source bool }

// machine names the side that a refusal of both is told of.
func (s Sides) machine() string {
	if s.Source && !s.Target {
		return machineSource
	}
	return machineTarget
}

// Closing is the present state of the sides that were asked for.
type Closing struct {
	Target    handoff.TargetState
	Source    handoff.SourceState
	Validated bool // TP once said yes
	Drained   bool // nothing can touch the memory of the sides any more
	Token     handoff.Token
}

// Undo closes an uncommitted attempt; a commit stays (rule 4).
func (c *Core) Undo(p handoff.Plan, s Sides) (Closing, error) {
	return c.close(p, s, handoff.TargetUndo, handoff.SourceUndo)
}

// Release ends an attempt whatever its state.
func (c *Core) Release(p handoff.Plan, s Sides) (Closing, error) {
	return c.close(p, s, handoff.TargetRelease, handoff.SourceRelease)
}

func (c *Core) close(p handoff.Plan, s Sides, te handoff.TargetEvent, se handoff.SourceEvent) (Closing, error) {
	c.enter()
	defer c.leave()
	if err := c.sidesServed(p, s); err != nil {
		return Closing{}, c.refused(s.machine(), p.Attempt, se.String(), err)
	}
	if s.Target {
		if err := c.stepTarget(handoff.TargetInput{Event: te, Attempt: p.Attempt, D: p.D}).Err(); err != nil {
			return Closing{}, err
		}
	}
	if s.Source {
		if err := c.stepSource(handoff.SourceInput{Event: se, Attempt: p.Attempt, P: p.P}).Err(); err != nil {
			return Closing{}, err
		}
	}
	return c.present(p.Attempt, s), nil
}

func (c *Core) sidesServed(p handoff.Plan, s Sides) error {
	if !s.Target && !s.Source {
		return handoff.Errorf(handoff.CodeInvalid, "neither side was named")
	}
	if s.Target {
		if err := c.targetServed(p); err != nil {
			return err
		}
	}
	if !s.Source {
		return nil
	}
	if p.P.Node == c.cfg.Node && p.P.Incarnation == c.cfg.Incarnation {
		if err := c.serves(p.P.Engine); err != nil {
			return err
		}
	}
	if r := c.sources.Get(p.Attempt); r != nil && !r.Plan.BodyDigest.IsZero() && r.Plan != p {
		return handoff.Errorf(handoff.CodeConflict, "this attempt has another plan")
	}
	return nil
}

func (c *Core) present(a handoff.Attempt, s Sides) Closing {
	out := Closing{Drained: true}
	if r := c.targets.Get(a); s.Target && r != nil {
		out.Target, out.Token = r.State, r.Token()
		out.Drained = r.Drained()
	}
	if r := c.sources.Get(a); s.Source && r != nil {
		out.Source, out.Validated = r.State, r.Validated
		out.Drained = out.Drained && r.Drained()
	}
	return out
}

// AwaitDrained answers once nothing can touch the memory of the sides any more,
// or that it is not so when ctx ends.
func (c *Core) AwaitDrained(ctx context.Context, p handoff.Plan, s Sides) (Closing, error) {
	for {
		out, wait, err := c.drainState(p, s)
		if err != nil || wait == nil {
			return out, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return out, handoff.Errorf(handoff.CodeNotReady, "not drained yet: target %s, source %s", out.Target, out.Source)
		}
	}
}

// drainState says what to wait for, nil when drained.
func (c *Core) drainState(p handoff.Plan, s Sides) (Closing, <-chan struct{}, error) {
	c.enter()
	defer c.leave()
	if err := c.sidesServed(p, s); err != nil {
		return Closing{}, nil, c.refused(s.machine(), p.Attempt, "drain", err)
	}
	for _, stale := range []bool{
		s.Target && c.targets.Get(p.Attempt) == nil && (p.D.Node != c.cfg.Node || p.D.Incarnation != c.cfg.Incarnation),
		s.Source && c.sources.Get(p.Attempt) == nil && (p.P.Node != c.cfg.Node || p.P.Incarnation != c.cfg.Incarnation),
	} {
		if stale {
			return Closing{}, nil, c.refused(s.machine(), p.Attempt, "drain", handoff.Errorf(handoff.CodeStaleIncarnation, "this is another life of the daemon"))
		}
	}
	out := c.present(p.Attempt, s)
	if out.Drained {
		return out, nil, nil
	}
	if t := c.held[p.Attempt]; s.Target && t != nil && !isClosed(t.drained) {
		return out, t.drained, nil
	}
	if l := c.lent[p.Attempt]; s.Source && l != nil && !isClosed(l.drained) {
		return out, l.drained, nil
	}
	return out, nil, handoff.Errorf(handoff.CodeInternal, "an attempt is not drained and holds no memory")
}

// Renew prolongs leases and gives the attempts that are over or unknown here.
// reader is the number of the reader that renews a decode, zero for anyone else.
func (c *Core) Renew(targets, sources []handoff.Attempt, lease time.Duration, reader uint32) ([]handoff.Attempt, error) {
	c.enter()
	defer c.leave()
	var lost []handoff.Attempt
	for _, a := range targets {
		if c.targets.Get(a) == nil && !c.isReady() {
			return nil, c.refused(machineTarget, a, handoff.TargetRenew.String(), handoff.Errorf(handoff.CodeUnavailable, "engines have not attached yet: what is not known may still be adopted"))
		}
		if c.stepTarget(handoff.TargetInput{Event: handoff.TargetRenew, Attempt: a, Lease: lease, Reader: reader}).Code != handoff.CodeNone {
			lost = append(lost, a)
		}
	}
	for _, a := range sources {
		r := c.sources.Get(a)
		if r == nil || c.stepSource(handoff.SourceInput{Event: handoff.SourceRenew, Attempt: a, Grant: r.Grant, Lease: lease}).Code != handoff.CodeNone {
			lost = append(lost, a)
		}
	}
	return lost, nil
}
