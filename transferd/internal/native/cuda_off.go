//go:build !linux || (!amd64 && !arm64) || nocuda

package native

import "errors"

// CUDA stands for a driver library that this build cannot load: the tag nocuda
// makes a daemon that needs no dynamic linker.
type CUDA struct{}

// CUDAMemory is never made in this build.
type CUDAMemory struct{}

var errNoCUDA = errors.New("this build loads no CUDA driver")

// LoadCUDA says that there is none.
func LoadCUDA(string) (*CUDA, error) { return nil, errNoCUDA }

func (*CUDA) OpenCUDA(CUDADevice, CUDAHandle, uint64, uint64) (*CUDAMemory, error) {
	return nil, errNoCUDA
}
func (*CUDA) AllocateCUDA(CUDADevice, uint64) (*CUDAMemory, error) { return nil, errNoCUDA }
func (*CUDAMemory) Bytes() uint64                                  { return 0 }
func (*CUDAMemory) Handle() (CUDAHandle, error)                    { return CUDAHandle{}, errNoCUDA }
func (*CUDAMemory) ReadAt([]uint64, [][]byte) error                { return errNoCUDA }
func (*CUDAMemory) WriteAt([]uint64, [][]byte) error               { return errNoCUDA }
func (*CUDAMemory) Close() error                                   { return errNoCUDA }
