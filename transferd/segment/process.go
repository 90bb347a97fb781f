package segment

import (
	"errors"
	"math"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

// process is plain memory of an engine's own process, reached by
// process_vm_readv and process_vm_writev. The kernel checks who may, not which
// ranges: extents do that.
type process struct {
	process *native.Process
	base    uint64
	bytes   uint64
}

// Process takes bytes of p's memory from base on. It reads the first and the
// last byte at once, so that a kernel that forbids it is found out before
// anything is granted. It owns p only if it gives no error.
func Process(p *native.Process, base, bytes uint64) (*Segment, error) {
	if base == 0 || bytes == 0 || bytes > math.MaxInt64 || base > math.MaxInt64-bytes {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment of %d bytes at %#x of a process", bytes, base)
	}
	m := &process{p, base, bytes}
	ends := [][]byte{make([]byte, 1), make([]byte, 1)}
	if err := p.ReadAt([]uint64{base, base + bytes - 1}, ends); err != nil {
		return nil, handoff.Errorf(handoff.CodeDenied, "segment: %s", err)
	}
	return &Segment{m}, nil
}

// ProbeProcess says why this host does not offer process memory at all; nil when
// it does. Whether it may be had of one engine shows when it attaches.
func ProbeProcess() error {
	p, err := native.Self()
	if err != nil {
		return err
	}
	word, err := native.Anonymous(8)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	copy(word, "surehand")
	out := make([]byte, len(word))
	err = p.ReadAt([]uint64{native.Address(word)}, [][]byte{out})
	if err == nil && string(out) != string(word) {
		err = errors.New("process_vm_readv read other bytes")
	}
	return errors.Join(err, native.Unmap(word), p.Close())
}

func (m *process) Kind() string       { return "process" }
func (m *process) Bytes() uint64      { return m.bytes }
func (m *process) View(Extent) []byte { return nil }

func (m *process) Read(from []Extent, into [][]byte) error {
	return m.typed(m.process.ReadAt(m.addresses(from), into))
}

func (m *process) Write(to []Extent, from [][]byte) error {
	return m.typed(m.process.WriteAt(m.addresses(to), from))
}

func (m *process) addresses(extents []Extent) []uint64 {
	out := make([]uint64, len(extents))
	for i, e := range extents {
		out[i] = m.base + e.At
	}
	return out
}

func (m *process) typed(err error) error {
	if err == nil {
		return nil
	}
	return handoff.Errorf(handoff.CodeEngine, "%s", err)
}

func (m *process) Close() error { return m.process.Close() }
