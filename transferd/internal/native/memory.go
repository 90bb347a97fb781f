// Package native is the daemon's only doorway to raw memory and raw system
// calls: memfds, mappings, views of mapped memory, descriptors over sockets,
// peer credentials, scatter reads and the parent's death. Nothing else under
// transferd imports unsafe or makes system calls of its own.
package native

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memfd makes anonymous shared memory of the given size that can be mapped by
// whoever holds its descriptor and can never shrink or grow: a mapping of it
// cannot fault because the other side cut it.
func Memfd(name string, bytes int) (*os.File, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("memfd %q of %d bytes", name, bytes)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		return nil, closing(f, fmt.Errorf("memfd %q to %d bytes: %w", name, bytes, err))
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return nil, closing(f, fmt.Errorf("seal memfd %q: %w", name, err))
	}
	return f, nil
}

// closing closes f after err and gives both.
func closing(f *os.File, err error) error {
	if cerr := f.Close(); cerr != nil {
		return fmt.Errorf("%w; and closing: %w", err, cerr)
	}
	return err
}

// CheckSealed refuses a descriptor that its owner could shrink under a mapping
// (a read would then end in SIGBUS), or that is smaller than promised.
func CheckSealed(f *os.File, bytes uint64) error {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("not a memfd: %w", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("memfd is not sealed against shrinking")
	}
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	if st.Size() < 0 || uint64(st.Size()) < bytes {
		return fmt.Errorf("memfd has %d bytes, promised %d", st.Size(), bytes)
	}
	return nil
}

// FileID tells whether two descriptors are of one memory, while either is mapped.
type FileID struct{ Device, Inode uint64 }

// Identify gives a descriptor's FileID.
func Identify(f *os.File) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return FileID{}, fmt.Errorf("memfd: %w", err)
	}
	return FileID{uint64(st.Dev), st.Ino}, nil
}

// SealWriters lets nobody write a memfd from now on but through the mappings that
// there are: a descriptor that is opened again through /proc, or passed on, is good
// for reading only.
func SealWriters(f *os.File) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil {
		return fmt.Errorf("seal memfd against writers: %w", err)
	}
	return nil
}

// HasWriters says whether a memfd may still be mapped for writing.
func HasWriters(f *os.File) (bool, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return seals&(unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_WRITE) == 0, err
}

// Map maps the first bytes of f, shared, for reading and writing.
func Map(f *os.File, bytes uint64) ([]byte, error) {
	return mapShared(f, bytes, unix.PROT_READ|unix.PROT_WRITE)
}

// MapReadOnly maps the first bytes of f, shared. A write faults.
func MapReadOnly(f *os.File, bytes uint64) ([]byte, error) {
	return mapShared(f, bytes, unix.PROT_READ)
}

func mapShared(f *os.File, bytes uint64, protection int) ([]byte, error) {
	if bytes == 0 || bytes > math.MaxInt64 {
		return nil, fmt.Errorf("map %d bytes", bytes)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(bytes), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", bytes, err)
	}
	advise(b)
	return b, nil
}

// advise asks for huge pages: reading another process's memory pins it page by
// page, and a page of 2 MiB costs what one of 4 KiB does (half the CPU, measured).
// A kernel that gives none loses nothing but that.
func advise(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// Unmap ends a mapping made by Map. Any later use of it faults.
func Unmap(b []byte) error { return unix.Munmap(b) }

// Floats views mapped memory as float32; b must be 4-byte aligned, as mappings are.
func Floats(b []byte) []float32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// LoadUint32 reads an aligned word of shared memory atomically.
func LoadUint32(b []byte, at int) uint32 { return atomic.LoadUint32(word(b, at)) }

// StoreUint32 writes an aligned word of shared memory after everything written
// before it is visible.
func StoreUint32(b []byte, at int, v uint32) { atomic.StoreUint32(word(b, at), v) }

func word(b []byte, at int) *uint32 {
	if at%4 != 0 || at+4 > len(b) {
		panic("native: word out of bounds or unaligned")
	}
	return (*uint32)(unsafe.Pointer(&b[at]))
}
