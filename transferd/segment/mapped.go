package segment

import (
	"os"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

// mapped is a memfd in this process's address space. Its owner closes it only
// when nothing posted can touch it any more; a view used after that faults.
type mapped struct {
	memory   []byte
	readOnly bool
	book     *Book
	key      key
	holders  int // guarded by book.mu
}

// Book knows the memfds that are mapped, so that one which is registered again, such
// as by an engine that is attached once as P and once as D, is mapped and counted
// once: it goes with the last of its registrations. The zero value is ready.
//
// Other kinds have no such identity: a process's number and a device's handle may come
// to mean another memory while the older one is still in use.
type Book struct {
	mu   sync.Mutex
	open map[key]*mapped
}

// key is a memfd's identity as long as it is mapped, and how it is mapped.
type key struct {
	file     native.FileID
	bytes    uint64
	writable bool
}

// Map maps the first bytes of f, which must be sealed against shrinking: a
// mapping that its owner can cut ends the reader with SIGBUS. One that its owner
// sealed against further writers, after its own mapping, is mapped read-only: it can
// be a source, never a target.
func (b *Book) Map(f *os.File, bytes uint64) (*Segment, error) {
	if err := native.CheckSealed(f, bytes); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment: %s", err)
	}
	writable, err := native.HasWriters(f)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment: %s", err)
	}
	id, err := native.Identify(f)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment: %s", err)
	}
	k := key{id, bytes, writable}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.open[k]; m != nil {
		m.holders++
		return &Segment{m}, nil
	}
	open := native.Map
	if !writable {
		open = native.MapReadOnly
	}
	memory, err := open(f, bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "segment: %s", err)
	}
	m := &mapped{memory: memory, readOnly: !writable, book: b, key: k, holders: 1}
	if b.open == nil {
		b.open = map[key]*mapped{}
	}
	b.open[k] = m
	return &Segment{m}, nil
}

func (m *mapped) Kind() string  { return "memfd" }
func (m *mapped) Bytes() uint64 { return uint64(len(m.memory)) }

// View gives the extent; Go checks its bounds again.
func (m *mapped) View(e Extent) []byte {
	return m.memory[e.At : e.At+uint64(e.Length) : e.At+uint64(e.Length)]
}

func (m *mapped) Read(from []Extent, into [][]byte) error {
	for i, e := range from {
		copy(into[i], m.View(e))
	}
	return nil
}

func (m *mapped) Write(to []Extent, from [][]byte) error {
	if m.readOnly {
		return handoff.Errorf(handoff.CodeDenied, "the segment is sealed against writers")
	}
	for i, e := range to {
		copy(m.View(e), from[i])
	}
	return nil
}

// Close ends one registration; the last one unmaps.
func (m *mapped) Close() error {
	m.book.mu.Lock()
	defer m.book.mu.Unlock()
	if m.holders--; m.holders > 0 {
		return nil
	}
	delete(m.book.open, m.key)
	memory := m.memory
	m.memory = nil
	return native.Unmap(memory)
}
