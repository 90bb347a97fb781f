package model

import (
	"encoding/binary"
	"fmt"
)

// The n-gram history is a state item of its own: the last three tokens,
// little-endian uint16, oldest first. Decode cannot embed its next token
// without it.

// ResetHistory writes the history of an empty sequence.
func ResetHistory(item []byte) { writeHistory(item, [history]uint16{None, None, None}) }

func writeHistory(item []byte, h [history]uint16) {
	for i, token := range h {
		binary.LittleEndian.PutUint16(item[2*i:], token)
	}
}

func readHistory(item []byte) (h [history]uint16, err error) {
	if len(item) != HistoryBytes {
		return h, fmt.Errorf("%w: n-gram history of %d bytes", ErrState, len(item))
	}
	for i := range h {
		if h[i] = binary.LittleEndian.Uint16(item[2*i:]); h[i] >= vocab {
			return h, fmt.Errorf("%w: n-gram history holds no token at %d", ErrState, i)
		}
	}
	return h, nil
}

// pushed is the history after one more token.
func pushed(h [history]uint16, token int) [history]uint16 {
	return [history]uint16{h[1], h[2], uint16(token)}
}

// buckets hashes the 2, 3 and 4 tokens that end with token. train.py has the
// same function; golden.json checks that the two agree.
func buckets(h [history]uint16, token int) (out [history]int) {
	x := uint32(token) + 1
	for i, size := range gramBuckets {
		x = (x^x>>15)*2654435761 + uint32(h[history-1-i]) + 1
		mixed := (x ^ x>>15) * 0x85EBCA6B
		out[i] = int((mixed >> 16) % uint32(size))
	}
	return out
}
