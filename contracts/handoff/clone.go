package handoff

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Clone and AppendKey serve the explorer: a copy that shares nothing with its
// original, and canonical bytes that are equal for states that behave alike.
// Left out of the bytes: leases, since the explorer's clock stands still and
// they end by choice; causes and details, which only people read; and the
// numbers of generations and grants, which are only compared within a record.

// Clone copies the table.
func (t *Targets) Clone() *Targets {
	c := *t
	c.records = make(map[Attempt]*Target, len(t.records))
	c.families = make(map[HandoffID]*family, len(t.families))
	for id, f := range t.families {
		g := &family{highest: f.highest, members: make([]*Target, len(f.members))}
		for i, m := range f.members {
			r := *m
			r.Landed = slices.Clone(m.Landed)
			g.members[i], c.records[m.Plan.Attempt] = &r, &r
		}
		c.families[id] = g
	}
	c.leases = slices.Clone(t.leases)
	return &c
}

// AppendKey appends the table's canonical bytes.
func (t *Targets) AppendKey(b []byte) []byte { return t.appendKey(b, nil) }

// AppendKeyOf appends those of one handoff, without its name.
func (t *Targets) AppendKeyOf(b []byte, h HandoffID) []byte { return t.appendKey(b, &h) }

func (t *Targets) appendKey(b []byte, of *HandoffID) []byte {
	b = append(b, 'T')
	b = binary.AppendUvarint(b, uint64(t.Incarnation))
	for _, r := range t.All() {
		if of != nil && r.Plan.Attempt.Handoff != *of {
			continue
		}
		b = r.Plan.Attempt.appendKey(b, of == nil)
		b = append(b, byte(r.State), byte(r.Posted), flags(r.Adopted, r.Freed, r.Generation != 0, r.Grant != 0))
		b = binary.AppendUvarint(b, uint64(t.Highest(r.Plan.Attempt.Handoff)))
		if r.State.Final() {
			continue
		}
		b = binary.AppendUvarint(b, uint64(r.Question))
		b = binary.AppendUvarint(b, uint64(r.Reader))
		b = append(b, r.Manifest[:4]...)
		for _, w := range r.Landed {
			b = binary.AppendUvarint(b, w)
		}
	}
	return b
}

// Clone copies the table.
func (t *Sources) Clone() *Sources {
	c := *t
	c.records = make(map[Attempt]*Source, len(t.records))
	for a, s := range t.records {
		r := *s
		r.Announced, r.Digests = slices.Clone(s.Announced), slices.Clone(s.Digests)
		c.records[a] = &r
	}
	c.leases = slices.Clone(t.leases)
	return &c
}

// AppendKey appends the table's canonical bytes.
func (t *Sources) AppendKey(b []byte) []byte { return t.appendKey(b, nil) }

// AppendKeyOf appends those of one handoff, without its name.
func (t *Sources) AppendKeyOf(b []byte, h HandoffID) []byte { return t.appendKey(b, &h) }

func (t *Sources) appendKey(b []byte, of *HandoffID) []byte {
	b = append(b, 'S')
	b = binary.AppendUvarint(b, uint64(t.Incarnation))
	for _, r := range t.All() {
		if of != nil && r.Plan.Attempt.Handoff != *of {
			continue
		}
		b = r.Plan.Attempt.appendKey(b, of == nil)
		b = append(b, byte(r.State), byte(r.Posted), flags(r.Validated, r.Stopped && r.Lane == LaneLocal, r.Freed, r.Grant != 0))
		b = append(b, r.Manifest[:4]...)
		for _, w := range r.Announced {
			b = binary.AppendUvarint(b, w)
		}
		for _, d := range r.Digests {
			b = binary.AppendUvarint(b, uint64(d))
		}
	}
	return b
}

// Clone copies the reader's record.
func (r *Reading) Clone() *Reading {
	c := *r
	c.state = maps.Clone(r.state)
	return &c
}

// AppendKey appends the record's canonical bytes.
func (r *Reading) AppendKey(b []byte) []byte {
	b = append(b, 'R', byte(r.newest), flags(r.delivering != nil))
	for _, a := range slices.SortedFunc(maps.Keys(r.state), Attempt.Compare) {
		b = append(a.appendKey(b, false), byte(r.state[a]))
	}
	return b
}

// Clone copies the coordinator.
func (c *Coordinator) Clone() *Coordinator {
	d := *c
	d.out = slices.Clone(c.out)
	return &d
}

// AppendKey appends the coordinator's canonical bytes.
func (c *Coordinator) AppendKey(b []byte) []byte {
	b = append(b, 'C')
	b = c.plan.Attempt.appendKey(b, false)
	b = append(b, c.phase[0], c.phase[1], byte(c.older), byte(c.target), byte(c.source), byte(c.asked),
		flags(c.cancelled, c.committed, c.failure != nil, c.outcome != nil, c.awaited))
	b = append(b, c.pending[:]...)
	b = append(b, flags(c.done[:4]...))
	for _, r := range []Reader{c.reader, c.asking, c.askedOf} {
		b = binary.AppendUvarint(b, uint64(r.Number))
		b = binary.AppendUvarint(b, uint64(r.Incarnation))
		b = append(append(b, r.Process...), 0)
	}
	if c.failure != nil {
		b = append(b, byte(c.failure.Code.Advice()), flags(c.failure.Code == CodeReset))
	}
	if c.outcome != nil {
		b = append(b, flags(c.outcome.Committed))
	}
	return append(b, byte(len(c.out)))
}

// Clone copies the account.
func (c *Capacity) Clone() *Capacity {
	d := *c
	d.entries = maps.Clone(c.entries)
	return &d
}

// AppendKey appends the account's canonical bytes.
func (c *Capacity) AppendKey(b []byte) []byte {
	b = append(b, 'L', byte(c.extra))
	for _, a := range slices.SortedFunc(maps.Keys(c.entries), Attempt.Compare) {
		b = binary.AppendUvarint(a.appendKey(b, true), uint64(c.entries[a].Blocks))
	}
	return b
}

// Clone copies the pins.
func (p *Pins) Clone() *Pins {
	d := Pins{Omit: p.Omit}
	for b, grants := range p.blocks {
		for g := range grants {
			d.Pin(b, g)
		}
	}
	return &d
}

// AppendKey appends the pins' canonical bytes.
func (p *Pins) AppendKey(b []byte) []byte {
	b = append(b, 'P')
	for _, block := range slices.Sorted(maps.Keys(p.blocks)) {
		b = binary.AppendUvarint(b, uint64(block))
		for _, g := range slices.Sorted(maps.Keys(p.blocks[block])) {
			b = binary.AppendUvarint(b, uint64(g))
		}
		b = append(b, 0)
	}
	return b
}

// appendKey leaves the handoff's name out where there is but one.
func (a Attempt) appendKey(b []byte, named bool) []byte {
	if named {
		b = append(append(b, a.Handoff...), 0)
	}
	b = binary.AppendUvarint(b, uint64(a.Epoch))
	return binary.AppendUvarint(b, uint64(a.Nonce))
}

func flags(bits ...bool) byte {
	var b byte
	for i, on := range bits {
		if on {
			b |= 1 << i
		}
	}
	return b
}
