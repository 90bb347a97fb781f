package native

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var order = binary.NativeEndian

// ErrNotQuiescent means that an operation failed and may still land: only the end
// of the process proves that it cannot.
var ErrNotQuiescent = errors.New("what was posted may still land")

// CUDADevice is a device's UUID. Numbers differ between processes, UUIDs do not.
type CUDADevice [16]byte

func (d CUDADevice) String() string { return fmt.Sprintf("%x", d[:]) }

// CUDAHandle is what another process opens an allocation by (CUipcMemHandle).
type CUDAHandle [64]byte

// arena is mapped memory for what a C library writes.
type arena struct{ bytes []byte }

func newArena() (*arena, error) {
	b, err := Anonymous(4096)
	return &arena{b}, err
}

func (a *arena) at(i int) uintptr    { return uintptr(Address(a.bytes)) + uintptr(i) }
func (a *arena) word32(i int) uint32 { return order.Uint32(a.bytes[i:]) }
func (a *arena) word64(i int) uint64 { return order.Uint64(a.bytes[i:]) }
func (a *arena) close() error        { return Unmap(a.bytes) }
