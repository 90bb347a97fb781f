package libllama

import (
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/surehand/surehand/contracts/handoff"
)

// Under the System V ABI of amd64 a struct of more than two words that is passed
// by value lies on the stack, and one that is returned is written where the first
// argument points. A call with all six argument registers filled therefore puts
// every further word on the stack, which is the struct.
const (
	registers   = 6
	maxWords    = 26 // purego passes 32 arguments
	returnWords = 128
	unwritten   = 0xA5A5A5A5A5A5A5A5
)

// params is a parameter struct that only the library knows whole. What lies
// behind its end goes along and is never looked at.
type params [maxWords]uintptr

// defaults asks the library for its defaults; a struct that is too large to be
// passed back is refused.
func defaults(function uintptr) (p params, err error) {
	var room [returnWords]uint64
	for i := range room {
		room[i] = unwritten
	}
	purego.SyscallN(function, uintptr(unsafe.Pointer(&room[0])))
	for _, word := range room[maxWords:] {
		if word != unwritten {
			return p, handoff.Errorf(handoff.CodeInvalid, "a parameter struct of this libllama is larger than %d bytes", maxWords*8)
		}
	}
	for i := range p {
		p[i] = uintptr(room[i])
	}
	return p, nil
}

// first four fields of llama_context_params.
type contextFields struct{ tokens, batch, microbatch, sequences uint32 }

func (p *params) fields() *contextFields { return (*contextFields)(unsafe.Pointer(p)) }

// by calls function with up to two leading arguments and then p by value.
func (p *params) by(function, argument uintptr) uintptr {
	var args [registers + maxWords]uintptr
	args[0] = argument
	copy(args[registers:], p[:])
	r, _, _ := purego.SyscallN(function, args[:]...)
	return r
}

// batch is llama_batch.
type batch struct {
	count     int32
	_         int32
	tokens    *int32
	embedding *float32
	positions *int32
	sequences *int32 // how many of each token
	sequence  **int32
	logits    *int8
}

const batchWords = int(unsafe.Sizeof(batch{}) / unsafe.Sizeof(uintptr(0)))

// decode calls llama_decode(context, b). The memory that b points to is the
// caller's to keep.
func (f *functions) decodeBatch(context uintptr, b *batch) int32 {
	var args [registers + batchWords]uintptr
	args[0] = context
	copy(args[registers:], (*[batchWords]uintptr)(unsafe.Pointer(b))[:])
	r, _, _ := purego.SyscallN(f.decode, args[:]...)
	return int32(r)
}
