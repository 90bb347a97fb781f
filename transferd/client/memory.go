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

// Memory is a memfd owned by this process, mapped once, sealed against shrink
// and grow. An engine keeps its KV cache in one.
type Memory struct {
	file  *os.File
	bytes []byte
	once  sync.Once
	err   error
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

// Bytes is the whole memory; not to be used after Close.
func (m *Memory) Bytes() []byte { return m.bytes }

// Floats views the same memory as float32; not to be used after Close.
func (m *Memory) Floats() []float32 { return native.Floats(m.bytes) }

// File is the descriptor that Attach passes to the daemon.
func (m *Memory) File() *os.File { return m.file }

// Close unmaps and closes; a repeat answers the same.
func (m *Memory) Close() error {
	m.once.Do(func() {
		if err := errors.Join(native.Unmap(m.bytes), m.file.Close()); err != nil {
			m.err = handoff.Errorf(handoff.CodeInternal, "close memory: %s", err)
		}
	})
	return m.err
}
