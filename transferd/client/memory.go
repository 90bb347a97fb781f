package client

import (
	"errors"
	"hash/crc32"
	"os"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C (Castagnoli) of b: the digest of an announced piece.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Memory is where an engine keeps its KV cache: a memfd owned by this process,
// mapped once, sealed against shrink and grow; or plain memory of this process.
// Or it is memory of a CUDA device, which only the driver reaches.
type Memory struct {
	file   *os.File // of a memfd
	bytes  []byte   // nil for device memory
	device *DeviceMemory
	once   sync.Once
	err    error
}

// NewMemory makes zeroed memory; name is for people (/proc/PID/maps).
func NewMemory(name string, bytes int) (*Memory, error) {
	f, err := native.Memfd(name, bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "memory: %s", err)
	}
	b, err := native.Map(f, uint64(bytes))
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "memory: %s", errors.Join(err, f.Close()))
	}
	return &Memory{file: f, bytes: b}, nil
}

// NewPlainMemory makes zeroed memory that the daemon reads and writes by
// process_vm_readv and process_vm_writev instead of mapping it: slower, and the
// kernel may forbid it, which Attach then says. It is for engines that cannot
// allocate their cache in a memfd.
func NewPlainMemory(bytes int) (*Memory, error) {
	b, err := native.Anonymous(bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "memory: %s", err)
	}
	return &Memory{bytes: b}, nil
}

// Bytes is the whole memory, nil for device memory; not to be used after Close.
func (m *Memory) Bytes() []byte { return m.bytes }

// Floats views the same memory as float32; not to be used after Close.
func (m *Memory) Floats() []float32 { return native.Floats(m.bytes) }

// File is the descriptor that Attach passes to the daemon, nil for plain memory.
func (m *Memory) File() *os.File { return m.file }

// SealWriters lets nobody write the memory from now on but this process, through its
// present mapping. For engines that are only ever sources: their daemon maps it
// read-only, and refuses it as a target.
func (m *Memory) SealWriters() error {
	if m.file == nil {
		return handoff.Errorf(handoff.CodeInvalid, "only a memfd can be sealed")
	}
	if err := native.SealWriters(m.file); err != nil {
		return handoff.Errorf(handoff.CodeInternal, "memory: %s", err)
	}
	return nil
}

// Close unmaps and closes; a repeat answers the same.
func (m *Memory) Close() error {
	m.once.Do(func() {
		if m.device != nil {
			m.err = m.device.close()
			return
		}
		err := native.Unmap(m.bytes)
		if m.file != nil {
			err = errors.Join(err, m.file.Close())
		}
		if err != nil {
			m.err = handoff.Errorf(handoff.CodeInternal, "close memory: %s", err)
		}
	})
	return m.err
}
