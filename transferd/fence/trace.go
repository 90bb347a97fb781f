package fence

import "github.com/surehand/surehand/contracts/handoff"

// Event is one accepted or refused transition, or a refusal before any transition:
// that one has no states, and refuse- and what was asked for its name. Reads, posts,
// landings and announcements are left out unless they change a state: they are bytes,
// not news.
type Event struct {
	At       handoff.Instant
	Machine  string // target, source or engine
	Attempt  handoff.Attempt
	Name     string
	From, To string
	Code     handoff.Code
}

// The machines that events are of, beside engine.
const (
	machineTarget = "target"
	machineSource = "source"
)

func (c *Core) emit(e Event) {
	if c.cfg.Trace != nil {
		e.At = c.now()
		c.cfg.Trace(e)
	}
}

// traceTarget tells of a move that was not made by stepTarget. It comes before
// settleTarget, while the engine was not told of the new state yet.
func (c *Core) traceTarget(a handoff.Attempt, name string, from handoff.TargetState, code handoff.Code) {
	if r := c.targets.Get(a); r != nil {
		c.emit(Event{Machine: machineTarget, Attempt: a, Name: name, From: from.String(), To: r.State.String(), Code: code})
	}
}

// expireTarget tells that a lease ended a target.
func (c *Core) expireTarget(a handoff.Attempt) {
	from := handoff.TargetUnknown
	if t := c.held[a]; t != nil {
		from = t.told
	}
	c.traceTarget(a, "expire", from, handoff.CodeLease)
	c.settleTarget(a)
}

func (c *Core) expireSource(a handoff.Attempt) {
	from := handoff.SourceUnknown
	if l := c.lent[a]; l != nil {
		from = l.told
	}
	if r := c.sources.Get(a); r != nil {
		c.emit(Event{Machine: machineSource, Attempt: a, Name: "expire", From: from.String(), To: r.State.String(), Code: handoff.CodeLease})
	}
	c.settleSource(a)
}

func isBulkTarget(e handoff.TargetEvent) bool {
	return e == handoff.TargetPost || e == handoff.TargetLand || e == handoff.TargetFail || e == handoff.TargetRenew
}

func isBulkSource(e handoff.SourceEvent) bool {
	return e == handoff.SourceRead || e == handoff.SourceReadDone || e == handoff.SourceAnnounce || e == handoff.SourceRenew
}

// stepTarget steps the table and acts on a changed state.
func (c *Core) stepTarget(in handoff.TargetInput) handoff.TargetAnswer {
	from := handoff.TargetUnknown
	if r := c.targets.Get(in.Attempt); r != nil {
		from = r.State
	}
	ans := c.targets.Step(c.now(), in)
	if ans.Code != handoff.CodeNone {
		c.refusals[ans.Code]++
	}
	if ans.Changed || ans.Code != handoff.CodeNone || !isBulkTarget(in.Event) {
		c.emit(Event{Machine: machineTarget, Attempt: in.Attempt, Name: in.Event.String(), From: from.String(), To: ans.State.String(), Code: ans.Code})
	}
	if ans.Changed {
		c.settleTarget(in.Attempt)
	}
	return ans
}

// stepSource is stepTarget for the other table.
func (c *Core) stepSource(in handoff.SourceInput) handoff.SourceAnswer {
	from := handoff.SourceUnknown
	if r := c.sources.Get(in.Attempt); r != nil {
		from = r.State
	}
	ans := c.sources.Step(c.now(), in)
	if ans.Code != handoff.CodeNone {
		c.refusals[ans.Code]++
	}
	if ans.Changed || ans.Code != handoff.CodeNone || !isBulkSource(in.Event) {
		c.emit(Event{Machine: machineSource, Attempt: in.Attempt, Name: in.Event.String(), From: from.String(), To: ans.State.String(), Code: ans.Code})
	}
	if ans.Changed {
		c.settleSource(in.Attempt)
	}
	return ans
}

// EventStuck is memory that a failed device operation may touch as long as this
// process lives.
const EventStuck = "stuck"

// tellStuck tells people what no table can end: memory that a failed device
// operation may still touch. Only this process's end frees it.
func (c *Core) tellStuck(machine string, a handoff.Attempt) {
	c.emit(Event{Machine: machine, Attempt: a, Name: EventStuck, Code: handoff.CodeInternal})
}
