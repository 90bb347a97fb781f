package paged

import "errors"

var (
	// ErrLayout: the sizes are impossible, or the memory is not of that size.
	ErrLayout = errors.New("paged: layout")
	// ErrFull: no free block or slot; refuse the request before prefill.
	ErrFull = errors.New("paged: full")
	// ErrNotHeld: a block or slot that nobody holds was used or released: a
	// fault of the caller, after which the arena's contents are in doubt.
	ErrNotHeld = errors.New("paged: not held")
	// ErrShared: a write to a block that others may be reading.
	ErrShared = errors.New("paged: block is shared")
)
