package model

import (
	"encoding/binary"
	"fmt"
	"math"
)

// KV gives access to the blocks of one sequence, in the order of its
// positions: block b holds positions 16b..16b+15. layer counts the paged
// layers. A run is RunBytes: K of its 16 tokens, then V, little-endian float32.
type KV interface {
	// Run returns a block's run in a layer, to read.
	Run(layer, block int) ([]byte, error)
	// WritableRun returns the same to write. It refuses a block that others
	// may be reading, such as a cached prefix or an announced one.
	WritableRun(layer, block int) ([]byte, error)
}

// State is everything that decode needs of the positions before Pos. All of it
// is the caller's memory: nothing is kept between calls, so each step reads
// what stands there then.
type State struct {
	KV      KV
	Ring    []byte // RingBytes: Window/16 runs; position p lies at row p % Window
	History []byte // the history item
	Pos     int    // the next position
}

// check bounds a call of n tokens before anything is touched.
func (s *State) check(tokens []int) error {
	switch {
	case len(tokens) == 0 || len(tokens) > MaxChunk:
		return fmt.Errorf("%w: chunk of %d tokens", ErrInput, len(tokens))
	case s.Pos < 0 || s.Pos+len(tokens) > MaxPositions:
		return fmt.Errorf("%w: positions %d to %d", ErrInput, s.Pos, s.Pos+len(tokens))
	case len(s.Ring) != ringBytes:
		return fmt.Errorf("%w: ring of %d bytes", ErrState, len(s.Ring))
	}
	for i, token := range tokens {
		if token < 0 || token >= None {
			return fmt.Errorf("%w: no token at %d of the chunk", ErrInput, i)
		}
	}
	return nil
}

// ringRun is the run of the ring where a position lies.
func (s *State) ringRun(position int) []byte {
	r := position % window / BlockTokens
	return s.Ring[r*runBytes : (r+1)*runBytes]
}

// putRow writes K and V of a position into its row of a run.
func putRow(run []byte, k, v []float32, position int) {
	row := position % BlockTokens * kvDim * 4
	putFloats(run[row:row+kvDim*4], k)
	putFloats(run[runBytes/2+row:runBytes/2+row+kvDim*4], v)
}

// getRows reads rows first..last-1 of a run.
func getRows(k, v []float32, run []byte, first, last int) {
	from, to := first*kvDim*4, last*kvDim*4
	getFloats(k[:(last-first)*kvDim], run[from:to])
	getFloats(v[:(last-first)*kvDim], run[runBytes/2+from:runBytes/2+to])
}

func putFloats(b []byte, x []float32) {
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
}

func getFloats(x []float32, b []byte) {
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}
