//go:build linux && (amd64 || arm64) && !nocuda

package native

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
)

// CUDA is NVIDIA's driver library, loaded at run time: nothing of it is linked in,
// and a host without it only offers no device memory. Everything that the library
// sees lies in mapped memory, which Go never moves.
type CUDA struct {
	calls map[string]uintptr
}

// The names under which the library exports what is used here.
var cudaCalls = []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
	"cuDevicePrimaryCtxReset_v2", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetAddressRange_v2", "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2",
	"cuIpcCloseMemHandle", "cuMemHostRegister_v2", "cuMemHostUnregister", "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize",
	"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"}

// LoadCUDA loads the library and starts it. The error says why there is none.
func LoadCUDA(path string) (*CUDA, error) {
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("no CUDA driver: %w", err)
	}
	c := &CUDA{calls: map[string]uintptr{}}
	for _, name := range cudaCalls {
		if c.calls[name], err = purego.Dlsym(lib, name); err != nil {
			return nil, fmt.Errorf("the CUDA driver lacks %s: %w", name, err)
		}
	}
	return c, c.do("cuInit", 0)
}

// CUDAError is a refusal of the driver.
type CUDAError struct {
	Call string
	Code int
}

func (e *CUDAError) Error() string { return fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code) }

func (c *CUDA) do(call string, args ...uintptr) error {
	r, _, _ := purego.SyscallN(c.calls[call], args...)
	if code := int32(r); code != 0 {
		return &CUDAError{call, int(code)}
	}
	return nil
}

// cudaContext is one process's context on one device; all memory of the device
// shares it.
type cudaContext struct {
	cuda   *CUDA
	device uintptr
	handle uintptr
}

// retain finds the device with that UUID and holds its context.
func (c *CUDA) retain(uuid CUDADevice, out *arena) (*cudaContext, error) {
	if err := c.do("cuDeviceGetCount", out.at(0)); err != nil {
		return nil, err
	}
	for n := range out.word32(0) {
		if err := c.do("cuDeviceGet", out.at(0), uintptr(n)); err != nil {
			return nil, err
		}
		device := uintptr(out.word32(0))
		if err := c.do("cuDeviceGetUuid_v2", out.at(16), device); err != nil {
			return nil, err
		}
		if CUDADevice(out.bytes[16:32]) != uuid {
			continue
		}
		if err := c.do("cuDevicePrimaryCtxRetain", out.at(0), device); err != nil {
			return nil, err
		}
		return &cudaContext{c, device, uintptr(out.word64(0))}, nil
	}
	return nil, fmt.Errorf("this host has no CUDA device %s", uuid)
}

// on runs work with the context current on one thread.
func (x *cudaContext) on(work func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := x.cuda.do("cuCtxSetCurrent", x.handle); err != nil {
		return err
	}
	return work()
}

func (x *cudaContext) release() error { return x.cuda.do("cuDevicePrimaryCtxRelease_v2", x.device) }

// cudaStaging is the host memory that a copy goes through; the driver reads and
// writes it by DMA. A piece has at most so many bytes.
const cudaStaging = 4 << 20

// CUDAMemory is device memory: allocated here, or another process's, opened by
// its IPC handle. Its copies are one after the other.
type CUDAMemory struct {
	ctx      *cudaContext
	at       uintptr // of the first byte of ours
	base     uintptr // of the allocation
	bytes    uint64
	imported bool

	mu      sync.Mutex
	stream  uintptr
	staging []byte
	lost    error // nothing of it can be used any more
	stuck   bool  // and what was posted may still land
}

// OpenCUDA opens another process's allocation and takes bytes of it from offset on.
// What the allocation does not have is refused, never cut.
func (c *CUDA) OpenCUDA(uuid CUDADevice, handle CUDAHandle, offset, bytes uint64) (*CUDAMemory, error) {
	return c.memory(uuid, func(m *CUDAMemory, out *arena) error {
		copy(out.bytes[64:128], handle[:])
		if err := c.do("cuIpcOpenMemHandle_v2", handleByValue(out.at(0), out.at(64), out.bytes[64:128])...); err != nil {
			return err
		}
		m.base, m.imported = uintptr(out.word64(0)), true
		if err := c.do("cuMemGetAddressRange_v2", out.at(0), out.at(8), m.base); err != nil {
			return err
		}
		if size := out.word64(8); bytes == 0 || offset > size || bytes > size-offset {
			return fmt.Errorf("%d bytes at %d of an allocation of %d", bytes, offset, size)
		}
		m.at, m.bytes = m.base+uintptr(offset), bytes
		return nil
	})
}

// AllocateCUDA allocates zeroed device memory of this process.
func (c *CUDA) AllocateCUDA(uuid CUDADevice, bytes uint64) (*CUDAMemory, error) {
	return c.memory(uuid, func(m *CUDAMemory, out *arena) error {
		if err := c.do("cuMemAlloc_v2", out.at(0), uintptr(bytes)); err != nil {
			return err
		}
		m.base, m.bytes = uintptr(out.word64(0)), bytes
		m.at = m.base
		return nil
	})
}

// memory sets up what a piece of device memory needs to be copied.
func (c *CUDA) memory(uuid CUDADevice, take func(*CUDAMemory, *arena) error) (m *CUDAMemory, err error) {
	out, err := newArena()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	ctx, err := c.retain(uuid, out)
	if err != nil {
		return nil, err
	}
	m = &CUDAMemory{ctx: ctx}
	if m.staging, err = Anonymous(cudaStaging); err != nil {
		return nil, errors.Join(err, ctx.release())
	}
	err = ctx.on(func() error {
		if err := c.do("cuMemHostRegister_v2", uintptr(Address(m.staging)), cudaStaging, 0); err != nil {
			return err
		}
		if err := c.do("cuStreamCreate", out.at(0), 1); err != nil { // 1: waits for no other stream
			return errors.Join(err, c.do("cuMemHostUnregister", uintptr(Address(m.staging))))
		}
		m.stream = uintptr(out.word64(0))
		return take(m, out)
	})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Bytes is its size.
func (m *CUDAMemory) Bytes() uint64 { return m.bytes }

// Handle is what another process opens the allocation by.
func (m *CUDAMemory) Handle() (h CUDAHandle, err error) {
	out, err := newArena()
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	err = m.ctx.on(func() error { return m.ctx.cuda.do("cuIpcGetMemHandle", out.at(0), m.at) })
	return CUDAHandle(out.bytes[:64]), err
}

// ReadAt fills each place from the memory at the offset beside it.
func (m *CUDAMemory) ReadAt(at []uint64, into [][]byte) error { return m.move(at, into, false) }

// WriteAt writes each place into the memory at the offset beside it. When it gives
// no error, or one that is not ErrNotQuiescent, nothing of it can land any more.
func (m *CUDAMemory) WriteAt(at []uint64, from [][]byte) error { return m.move(at, from, true) }

// move copies as many places at once as the staging memory has room for. The
// stream is waited for before a byte is believed, either way.
func (m *CUDAMemory) move(at []uint64, places [][]byte, toDevice bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(places) > 0 {
		if m.lost != nil {
			return m.broken()
		}
		n, used := 0, 0
		for n < len(places) && used+len(places[n]) <= len(m.staging) {
			if uint64(len(places[n])) > m.bytes || at[n] > m.bytes-uint64(len(places[n])) {
				return fmt.Errorf("%d bytes at %d of device memory of %d", len(places[n]), at[n], m.bytes)
			}
			used += len(places[n])
			n++
		}
		if n == 0 {
			return fmt.Errorf("a place of %d bytes, limit %d", len(places[0]), len(m.staging))
		}
		if err := m.ctx.on(func() error { return m.batch(at[:n], places[:n], toDevice) }); err != nil {
			return m.lose(err)
		}
		at, places = at[n:], places[n:]
	}
	return nil
}

func (m *CUDAMemory) batch(at []uint64, places [][]byte, toDevice bool) error {
	host := uintptr(Address(m.staging))
	used := 0
	for i, p := range places {
		here, there, n := host+uintptr(used), m.at+uintptr(at[i]), uintptr(len(p))
		var err error
		switch {
		case n == 0:
		case toDevice:
			copy(m.staging[used:], p)
			err = m.ctx.cuda.do("cuMemcpyHtoDAsync_v2", there, here, n, m.stream)
		default:
			err = m.ctx.cuda.do("cuMemcpyDtoHAsync_v2", here, there, n, m.stream)
		}
		if err != nil {
			return err
		}
		used += len(p)
	}
	if err := m.ctx.cuda.do("cuStreamSynchronize", m.stream); err != nil || toDevice {
		return err
	}
	used = 0
	for _, p := range places {
		used += copy(p, m.staging[used:])
	}
	return nil
}

// lose is after a call that failed. What was posted before it is waited for. When
// that fails too, only the context's destruction proves that it is over, and that
// takes all memory of the device in this process with it.
func (m *CUDAMemory) lose(why error) error {
	wait := m.ctx.on(func() error { return m.ctx.cuda.do("cuStreamSynchronize", m.stream) })
	if wait == nil {
		return why
	}
	m.lost = errors.Join(why, wait)
	if err := m.ctx.cuda.do("cuDevicePrimaryCtxReset_v2", m.ctx.device); err != nil {
		m.stuck = true
		m.lost = errors.Join(m.lost, err)
	}
	return m.broken()
}

func (m *CUDAMemory) broken() error {
	if m.stuck {
		return errors.Join(ErrNotQuiescent, m.lost)
	}
	return m.lost
}

// Close gives it back; nothing of it may be used any more. Memory that is not
// quiescent stays as it is: only the process's end frees it.
func (m *CUDAMemory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck {
		return ErrNotQuiescent
	}
	var err error
	if m.lost == nil { // else the context took all of it with it
		err = m.ctx.on(m.giveBack)
	}
	m.lost = errors.New("device memory is closed")
	return errors.Join(err, m.ctx.release(), Unmap(m.staging))
}

func (m *CUDAMemory) giveBack() error {
	c := m.ctx.cuda
	var err error
	if m.stream != 0 {
		err = errors.Join(c.do("cuStreamDestroy_v2", m.stream), c.do("cuMemHostUnregister", uintptr(Address(m.staging))))
	}
	switch {
	case m.base == 0:
	case m.imported:
		err = errors.Join(err, c.do("cuIpcCloseMemHandle", m.base))
	default:
		err = errors.Join(err, c.do("cuMemFree_v2", m.base))
	}
	return err
}

// handleByValue passes a struct of 64 bytes as the C calling convention does: on
// amd64 on the stack, after six registers; on arm64 by the address of a copy.
func handleByValue(out, at uintptr, handle []byte) []uintptr {
	if runtime.GOARCH == "arm64" {
		return []uintptr{out, at, 1}
	}
	args := []uintptr{out, 1, 0, 0, 0, 0} // 1: peer access is enabled when it is needed
	for i := 0; i < len(handle); i += 8 {
		args = append(args, uintptr(order.Uint64(handle[i:])))
	}
	return args
}
