package fence

import (
	"maps"
	"slices"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/segment"
)

// Stats is what a core holds and has done.
type Stats struct {
	Engines            []EngineStats
	TargetStates       map[handoff.TargetState]int // of records that hold memory
	SourceStates       map[handoff.SourceState]int
	TargetsLive        int
	TargetsQuarantined int
	SourcesLive        int
	SourcesQuarantined int
	QuarantinedBytes   uint64
	RegisteredBytes    uint64
	PinnedBlocks       int
	Tombstones         int // records without memory
	Committed          uint64
	CommittedBytes     uint64
	PulledBytes        uint64
	Gathering          time.Duration // spent copying pieces together that cannot be sent from where they lie
	Scattering         time.Duration // spent copying pieces apart that could not be read into place
	Refusals           map[handoff.Code]uint64
	Ready              bool
}

// EngineStats is one attached engine.
type EngineStats struct {
	ID    handoff.EngineID
	Bytes uint64
	Kind  string // of its memory
}

// Stats counts.
func (c *Core) Stats() Stats {
	c.enter()
	defer c.leave()
	s := Stats{TargetStates: map[handoff.TargetState]int{}, SourceStates: map[handoff.SourceState]int{},
		PinnedBlocks: c.pins.Len(), Tombstones: c.targets.Freed() + c.sources.Freed(),
		Committed: c.totals.committed, CommittedBytes: c.totals.committedBytes,
		PulledBytes: c.totals.pulledBytes, Gathering: c.totals.gathering, Scattering: c.totals.scattering, Refusals: maps.Clone(c.refusals), Ready: c.isReady()}
	for a, t := range c.held {
		r := c.targets.Get(a)
		s.TargetStates[r.State]++
		if r.State.Live() {
			s.TargetsLive++
		}
		if r.Quarantined() {
			s.TargetsQuarantined++
			s.QuarantinedBytes += t.bytes
		}
	}
	for a, l := range c.lent {
		r := c.sources.Get(a)
		s.SourceStates[r.State]++
		if r.State != handoff.SourceClosed {
			s.SourcesLive++
		}
		if r.Quarantined() {
			s.SourcesQuarantined++
			s.QuarantinedBytes += l.bytes
		}
	}
	counted := map[segment.Memory]bool{} // one memory may be of several engines
	for _, id := range slices.Sorted(maps.Keys(c.engines)) {
		e := c.engines[id]
		s.Engines = append(s.Engines, EngineStats{id, e.Segment.Bytes(), e.Segment.Kind()})
		if m := e.Segment.Memory; !counted[m] {
			counted[m] = true
			s.RegisteredBytes += m.Bytes()
		}
	}
	return s
}

// took adds to one of the totals of time.
func (c *Core) took(total *time.Duration, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*total += d
}

// TargetRecord and SourceRecord are copies of records, for people.
type TargetRecord struct {
	Plan   handoff.Plan
	State  handoff.TargetState
	Cause  handoff.Code
	Posted int
	Blocks uint32 // KV blocks of the prompt; 0: a tombstone
	Freed  bool
}

// SourceRecord is a copy of a source's record.
type SourceRecord struct {
	Plan      handoff.Plan
	State     handoff.SourceState
	Cause     handoff.Code
	Posted    int
	Blocks    uint32 // as a target's
	Validated bool
	Freed     bool
}

// Records copies at most limit records of each table, those that hold memory
// first, in the order of their attempts.
func (c *Core) Records(limit int) (targets []TargetRecord, sources []SourceRecord) {
	c.enter()
	defer c.leave()
	for _, freed := range []bool{false, true} {
		for _, r := range c.targets.All() {
			if r.Freed == freed && len(targets) < limit {
				targets = append(targets, TargetRecord{r.Plan, r.State, r.Cause, r.Posted, r.Shape.Blocks(), r.Freed})
			}
		}
		for _, r := range c.sources.All() {
			if r.Freed == freed && len(sources) < limit {
				sources = append(sources, SourceRecord{r.Plan, r.State, r.Cause, r.Posted, r.Shape.Blocks(), r.Validated, r.Freed})
			}
		}
	}
	return targets, sources
}
