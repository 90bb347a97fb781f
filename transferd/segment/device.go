package segment

import (
	"errors"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

// device is an engine's allocation on a CUDA device, opened by its IPC handle.
// Copies go through page-locked memory of this process, and their stream is waited
// for before a byte counts as read or written.
type device struct{ memory *native.CUDAMemory }

// Device takes bytes from offset on of the allocation that handle names. An
// allocation that has fewer is refused.
func Device(driver *native.CUDA, uuid native.CUDADevice, handle native.CUDAHandle, offset, bytes uint64) (*Segment, error) {
	m, err := driver.OpenCUDA(uuid, handle, offset, bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "segment: %s", err)
	}
	return &Segment{&device{m}}, nil
}

func (d *device) Kind() string       { return "cuda" }
func (d *device) Bytes() uint64      { return d.memory.Bytes() }
func (d *device) View(Extent) []byte { return nil }

func (d *device) Read(from []Extent, into [][]byte) error {
	return typedDevice(d.memory.ReadAt(starts(from), into))
}

func (d *device) Write(to []Extent, from [][]byte) error {
	return typedDevice(d.memory.WriteAt(starts(to), from))
}

func starts(extents []Extent) []uint64 {
	out := make([]uint64, len(extents))
	for i, e := range extents {
		out[i] = e.At
	}
	return out
}

func typedDevice(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, native.ErrNotQuiescent):
		return &NotQuiescent{handoff.Errorf(handoff.CodeEngine, "%s", err)}
	}
	return handoff.Errorf(handoff.CodeEngine, "%s", err)
}

func (d *device) Close() error { return d.memory.Close() }

// NotQuiescent is the error of a copy that failed and may still land. Its memory
// stays quarantined as long as this process lives (rule 21).
type NotQuiescent struct{ cause *handoff.Error }

func (e *NotQuiescent) Error() string { return e.cause.Error() }
func (e *NotQuiescent) Unwrap() error { return e.cause }

// IsNotQuiescent says whether what err ended may still land.
func IsNotQuiescent(err error) bool {
	var n *NotQuiescent
	return errors.As(err, &n)
}
