// Package fencetest is an engine's memory without an engine: plain bytes and a
// flag page that outlive the cores that they attach to, for simulations that
// kill a daemon and keep its engine.
package fencetest

import (
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/segment"
)

// Memory is what one engine has: a segment and the page of its slots.
type Memory struct {
	mu    sync.Mutex
	bytes []byte
	slots uint32
	flags []byte
	fail  *handoff.Error // of every write
}

var _ segment.Memory = (*Memory)(nil)

// New makes memory, all zero, with a page of slots.
func New(bytes int, slots uint32) *Memory {
	return &Memory{bytes: make([]byte, bytes), slots: slots, flags: make([]byte, slots*flagpage.SlotBytes)}
}

// Engine is the memory as a core attaches it.
func (m *Memory) Engine(id handoff.EngineID, revision string, layout handoff.Digest, notify func(fence.Notice)) *fence.Engine {
	return &fence.Engine{ID: id, Revision: revision, Layout: layout, Segment: &segment.Segment{Memory: m},
		Page: flagpage.New(m.flags, m.slots), Notify: notify, Close: func() error { return nil }}
}

// Sever is the sudden death of a daemon: what its core still does reaches a copy
// that nobody looks at.
func Sever(e *fence.Engine, m *Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Memory{bytes: append([]byte(nil), m.bytes...), slots: m.slots, flags: append([]byte(nil), m.flags...)}
	e.Page, e.Segment, e.Notify = flagpage.New(c.flags, c.slots), &segment.Segment{Memory: c}, func(fence.Notice) {}
}

// FailWrites makes every write of a daemon fail, or with nil succeed again.
func (m *Memory) FailWrites(err *handoff.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// IsVisible says whether the page shows the attempt in a slot as committed: what
// a decode asks at each step.
func (m *Memory) IsVisible(slot uint32, a handoff.Attempt) bool {
	return flagpage.New(m.flags, m.slots).IsVisible(slot, a)
}

// Put writes as the engine itself does.
func (m *Memory) Put(at uint64, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.bytes[at:], b)
}

// Get copies memory out.
func (m *Memory) Get(at uint64, n int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]byte(nil), m.bytes[at:at+uint64(n)]...)
}

// Kind implements segment.Memory.
func (m *Memory) Kind() string { return "simulated" }

// Bytes implements segment.Memory.
func (m *Memory) Bytes() uint64 { return uint64(len(m.bytes)) }

// View implements segment.Memory: a daemon reads and writes by copy, so that a
// write can fail.
func (m *Memory) View(segment.Extent) []byte { return nil }

// Read implements segment.Memory.
func (m *Memory) Read(from []segment.Extent, into [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, e := range from {
		copy(into[i], m.bytes[e.At:e.At+uint64(e.Length)])
	}
	return nil
}

// Write implements segment.Memory.
func (m *Memory) Write(to []segment.Extent, from [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for i, e := range to {
		copy(m.bytes[e.At:e.At+uint64(e.Length)], from[i])
	}
	return nil
}

// Close implements segment.Memory.
func (m *Memory) Close() error { return nil }
