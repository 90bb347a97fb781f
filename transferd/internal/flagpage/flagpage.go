// Package flagpage is the page of shared memory in which a transferd tells one
// engine which targets are visible. The engine makes it (a memfd) and only reads
// it; only the daemon writes it. It outlives the daemon: a restarted one adopts
// from it what an earlier one committed (rule 9).
//
// A slot is 512 bytes, little-endian:
//
//	 0 state u32       0 empty, 1 open, 2 visible, 3 over; the last word written
//	 4 epoch u32
//	 8 nonce u64
//	16 generation u64
//	24 incarnation u64 of the TD that wrote the slot
//	32 length u32      of the rest of the plan
//	36 check u32       CRC32C of bytes 4..36 and of the rest of the plan
//	40 the rest: handoff id, P engine, node, incarnation, the same of D, reader
//	   process, incarnation, number, body digest; a string is a length byte and bytes
//
// Commit is one atomic store of state = visible after everything else stands.
package flagpage

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

const (
	// SlotBytes is the size of one slot.
	SlotBytes = 512
	// MaxSlots bounds a page.
	MaxSlots = handoff.MaxTargets

	headerBytes = 40
)

// State is the first word of a slot.
type State uint32

const (
	Empty State = iota
	Open
	Visible
	Over
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Page views the mapped memory of a flag page.
type Page struct{ memory []byte }

// New views memory as a page of slots; nil when it is too small.
func New(memory []byte, slots uint32) *Page {
	if slots == 0 || slots > MaxSlots || uint64(len(memory)) < uint64(slots)*SlotBytes {
		return nil
	}
	return &Page{memory: memory[:uint64(slots)*SlotBytes]}
}

// Slots is the number of slots.
func (p *Page) Slots() uint32 { return uint32(len(p.memory) / SlotBytes) }

func (p *Page) slot(i uint32) []byte { return p.memory[i*SlotBytes : (i+1)*SlotBytes] }

// State reads a slot's state; an acquire, so that what it covers may be read after.
func (p *Page) State(i uint32) State { return State(native.LoadUint32(p.slot(i), 0)) }

// Set publishes a state of a slot that was written before.
func (p *Page) Set(i uint32, s State) { native.StoreUint32(p.slot(i), 0, uint32(s)) }

// Entry is what a slot says.
type Entry struct {
	Plan        handoff.Plan
	Generation  handoff.Generation
	Incarnation handoff.Incarnation
}

// Write fills slot i for an open target. The slot is empty meanwhile, so that a
// death in the middle leaves nothing that could be adopted.
func (p *Page) Write(i uint32, e Entry) error {
	body, err := appendPlan(nil, e.Plan)
	if err != nil {
		return err
	}
	p.Set(i, Empty)
	b := p.slot(i)
	binary.LittleEndian.PutUint32(b[4:], uint32(e.Plan.Attempt.Epoch))
	binary.LittleEndian.PutUint64(b[8:], uint64(e.Plan.Attempt.Nonce))
	binary.LittleEndian.PutUint64(b[16:], uint64(e.Generation))
	binary.LittleEndian.PutUint64(b[24:], uint64(e.Incarnation))
	binary.LittleEndian.PutUint32(b[32:], uint32(len(body)))
	copy(b[headerBytes:], body)
	binary.LittleEndian.PutUint32(b[36:], check(b, len(body)))
	p.Set(i, Open)
	return nil
}

func check(b []byte, n int) uint32 {
	c := crc32.Update(0, castagnoli, b[4:36])
	return crc32.Update(c, castagnoli, b[headerBytes:headerBytes+n])
}

// Read gives what slot i says; ok is false for an empty or torn slot.
func (p *Page) Read(i uint32) (e Entry, ok bool) {
	if p.State(i) == Empty {
		return Entry{}, false
	}
	b := p.slot(i)
	n := binary.LittleEndian.Uint32(b[32:])
	if n > SlotBytes-headerBytes || binary.LittleEndian.Uint32(b[36:]) != check(b, int(n)) {
		return Entry{}, false
	}
	plan, ok := parsePlan(b[headerBytes : headerBytes+n])
	if !ok {
		return Entry{}, false
	}
	plan.Attempt.Epoch = handoff.Epoch(binary.LittleEndian.Uint32(b[4:]))
	plan.Attempt.Nonce = handoff.Nonce(binary.LittleEndian.Uint64(b[8:]))
	return Entry{
		Plan:        plan,
		Generation:  handoff.Generation(binary.LittleEndian.Uint64(b[16:])),
		Incarnation: handoff.Incarnation(binary.LittleEndian.Uint64(b[24:])),
	}, true
}

// IsVisible says whether slot i shows attempt a as committed. It is what an
// engine may ask at each step: three loads, no system call. The handoff id is
// not compared: a slot belongs to one target until its engine freed it.
func (p *Page) IsVisible(i uint32, a handoff.Attempt) bool {
	if p.State(i) != Visible {
		return false
	}
	b := p.slot(i)
	return binary.LittleEndian.Uint32(b[4:]) == uint32(a.Epoch) && binary.LittleEndian.Uint64(b[8:]) == uint64(a.Nonce)
}
