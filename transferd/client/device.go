package client

import (
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

// DeviceMemory is where an allocation on a CUDA device is: what the daemon opens
// it by. It must be of cudaMalloc's kind: memory of CUDA's virtual memory management
// has no such handle.
type DeviceMemory struct {
	Device [16]byte // UUID
	Handle [64]byte // CUipcMemHandle of the allocation
	Offset uint64   // of the segment in it
	Bytes  uint64

	own *native.CUDAMemory // allocated here; nil: lent by whoever owns it
}

// LendDeviceMemory describes device memory that something else of this process
// allocated and keeps, until the Engine is closed.
func LendDeviceMemory(d DeviceMemory) *Memory {
	d.own = nil
	return &Memory{device: &d}
}

// NewDeviceMemory allocates device memory by the driver library, libcuda.so.1 where
// none is named.
func NewDeviceMemory(library string, device [16]byte, bytes uint64) (*Memory, error) {
	if library == "" {
		library = "libcuda.so.1"
	}
	driver, err := native.LoadCUDA(library)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "device memory: %s", err)
	}
	own, err := driver.AllocateCUDA(device, bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "device memory: %s", err)
	}
	handle, err := own.Handle()
	if err != nil {
		return nil, also(handoff.Errorf(handoff.CodeEngine, "device memory: %s", err), own.Close())
	}
	return &Memory{device: &DeviceMemory{Device: device, Handle: handle, Bytes: bytes, own: own}}, nil
}

// Size is the memory's size in bytes.
func (m *Memory) Size() uint64 {
	if m.device != nil {
		return m.device.Bytes
	}
	return uint64(len(m.bytes))
}

// ReadAt copies from the memory, whatever its kind.
func (m *Memory) ReadAt(at uint64, into []byte) error {
	return m.move(at, into, func() { copy(into, m.bytes[at:]) }, (*native.CUDAMemory).ReadAt)
}

// WriteAt copies into the memory, whatever its kind.
func (m *Memory) WriteAt(at uint64, from []byte) error {
	return m.move(at, from, func() { copy(m.bytes[at:], from) }, (*native.CUDAMemory).WriteAt)
}

func (m *Memory) move(at uint64, b []byte, mapped func(), device func(*native.CUDAMemory, []uint64, [][]byte) error) error {
	if n := uint64(len(b)); n > m.Size() || at > m.Size()-n {
		return handoff.Errorf(handoff.CodeInvalid, "%d bytes at %d of %d", n, at, m.Size())
	}
	if m.device == nil {
		mapped()
		return nil
	}
	if m.device.own == nil {
		return handoff.Errorf(handoff.CodeInvalid, "lent device memory is reached by its owner")
	}
	if err := device(m.device.own, []uint64{at}, [][]byte{b}); err != nil {
		return handoff.Errorf(handoff.CodeEngine, "%s", err)
	}
	return nil
}

func (d *DeviceMemory) close() error {
	if d.own == nil {
		return nil
	}
	if err := d.own.Close(); err != nil {
		return handoff.Errorf(handoff.CodeInternal, "close device memory: %s", err)
	}
	return nil
}

// Device says where device memory is, for whoever opens it; zero for other kinds.
func (m *Memory) Device() DeviceMemory {
	if m.device == nil {
		return DeviceMemory{}
	}
	d := *m.device
	d.own = nil
	return d
}
