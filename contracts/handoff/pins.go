package handoff

// Pins counts, per block, the grants that may read it (rule 15): a prefix block
// shared by two handoffs is free only when both let go. The zero value is ready.
type Pins struct {
	Omit   Omitted // only the explorer sets it
	blocks map[uint32]map[GrantID]struct{}
}

// Pin records that grant g may read block b.
func (p *Pins) Pin(b uint32, g GrantID) {
	if p.blocks == nil {
		p.blocks = map[uint32]map[GrantID]struct{}{}
	}
	if p.blocks[b] == nil {
		p.blocks[b] = map[GrantID]struct{}{}
	}
	p.blocks[b][g] = struct{}{}
}

// Unpin ends g's pin on b and says whether b is unpinned now.
func (p *Pins) Unpin(b uint32, g GrantID) bool {
	if p.Omit.Has(RulePins) {
		delete(p.blocks, b) // a mark instead of a count
		return true
	}
	delete(p.blocks[b], g)
	if len(p.blocks[b]) == 0 {
		delete(p.blocks, b)
		return true
	}
	return false
}

// Pinned says whether any grant may read b.
func (p *Pins) Pinned(b uint32) bool { return len(p.blocks[b]) > 0 }

// Len is the number of pinned blocks.
func (p *Pins) Len() int { return len(p.blocks) }
