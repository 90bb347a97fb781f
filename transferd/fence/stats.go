package fence

import (
	"maps"
	"slices"

	"github.com/surehand/surehand/contracts/handoff"
)

// Stats is what a core holds and has done.
type Stats struct {
	Engines          []EngineStats
	TargetStates     map[handoff.TargetState]int
	SourceStates     map[handoff.SourceState]int
	TargetsLive      int
	TargetsQuarant   int
	SourcesLive      int
	SourcesQuarant   int
	QuarantinedBytes uint64
	RegisteredBytes  uint64
	PinnedBlocks     int
	Committed        uint64
	CommittedBytes   uint64
	PulledBytes      uint64
	Refusals         map[handoff.Code]uint64
	Ready            bool
}

// EngineStats is one attached engine.
type EngineStats struct {
	ID    handoff.EngineID
	Bytes uint64
}

// Stats counts; records without memory are not counted.
func (c *Core) Stats() Stats {
	c.enter()
	defer c.leave()
	s := Stats{TargetStates: map[handoff.TargetState]int{}, SourceStates: map[handoff.SourceState]int{},
		PinnedBlocks: c.pins.Len(), Committed: c.totals.committed, CommittedBytes: c.totals.committedBytes,
		PulledBytes: c.totals.pulledBytes, Refusals: maps.Clone(c.refusals), Ready: c.isReady()}
	for a, t := range c.held {
		r := c.targets.Get(a)
		s.TargetStates[r.State]++
		if r.State.Live() {
			s.TargetsLive++
		}
		if r.Quarantined() {
			s.TargetsQuarant++
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
			s.SourcesQuarant++
			s.QuarantinedBytes += l.bytes
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.engines)) {
		e := c.engines[id]
		s.Engines = append(s.Engines, EngineStats{id, e.Segment.Bytes()})
		s.RegisteredBytes += e.Segment.Bytes()
	}
	return s
}

// Records copies every record, freed ones too, in the order of their attempts.
// The bitmaps and digests are left out.
func (c *Core) Records() (targets []handoff.Target, sources []handoff.Source) {
	c.enter()
	defer c.leave()
	for _, r := range c.targets.All() {
		k := *r
		k.Landed = nil
		targets = append(targets, k)
	}
	for _, r := range c.sources.All() {
		k := *r
		k.Announced, k.Digests = nil, nil
		sources = append(sources, k)
	}
	return targets, sources
}
