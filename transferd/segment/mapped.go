package segment

import (
	"os"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

// mapped is a memfd in this process's address space. Its owner closes it only
// when nothing posted can touch it any more; a view used after that faults.
type mapped struct {
	memory   []byte
	readOnly bool
}

// Map maps the first bytes of f, which must be sealed against shrinking: a
// mapping that its owner can cut ends the reader with SIGBUS. One that its owner
// sealed against further writers, after its own mapping, is mapped read-only: it can
// be a source, never a target.
func Map(f *os.File, bytes uint64) (*Segment, error) {
	if err := native.CheckSealed(f, bytes); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment: %s", err)
	}
	writable, err := native.HasWriters(f)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment: %s", err)
	}
	open := native.Map
	if !writable {
		open = native.MapReadOnly
	}
	memory, err := open(f, bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "segment: %s", err)
	}
	return &Segment{&mapped{memory, !writable}}, nil
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

func (m *mapped) Close() error {
	memory := m.memory
	m.memory = nil
	return native.Unmap(memory)
}
