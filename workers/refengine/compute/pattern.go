package compute

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// syntheticState is one attempt's state and what its bytes must be.
type syntheticState struct {
	s    *Synthetic
	q    *paged.Sequence
	seed uint64
}

// fill writes positions from..to-1 of a layer.
func (x *syntheticState) fill(layer, from, to int) error {
	for from < to {
		run, err := x.q.WritableRun(layer, from/x.s.o.BlockTokens)
		if err != nil {
			return typed(err)
		}
		for end := x.blockEnd(from, to); from < end; from++ {
			fill(x.row(run, from), x.rowSeed(layer, from))
		}
	}
	return nil
}

// check gives the first position of from..to-1 with a wrong byte, -1: none.
func (x *syntheticState) check(layer, from, to int) (int, error) {
	for from < to {
		run, err := x.q.Run(layer, from/x.s.o.BlockTokens)
		if err != nil {
			return 0, typed(err)
		}
		for end := x.blockEnd(from, to); from < end; from++ {
			if !equal(x.row(run, from), x.rowSeed(layer, from)) {
				return from, nil
			}
		}
	}
	return -1, nil
}

// blockEnd is where the block of position from ends, or to.
func (x *syntheticState) blockEnd(from, to int) int {
	n := x.s.o.BlockTokens
	return min(to, (from/n+1)*n)
}

// each applies f to the ring and the items until it says no.
func (x *syntheticState) each(f func([]byte, uint64) bool) bool {
	if !f(x.q.Ring(), x.rowSeed(-1, 0)) {
		return false
	}
	for i, item := range x.s.Items() {
		if !f(item.Of(x.q.Items()), x.rowSeed(-2-i, 0)) {
			return false
		}
	}
	return true
}

func (x *syntheticState) row(run []byte, pos int) []byte {
	at := pos % x.s.o.BlockTokens * x.s.o.TokenBytes
	return run[at : at+x.s.o.TokenBytes]
}

func (x *syntheticState) rowSeed(layer, pos int) uint64 {
	return mix(x.seed ^ mix(uint64(int64(layer))<<32^uint64(pos)))
}

func seedOf(a handoff.Attempt) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.Handoff)) // a hash takes every byte
	return mix(h.Sum64() ^ mix(uint64(a.Epoch)) ^ mix(uint64(a.Nonce)+1))
}

// mix is the finaliser of splitmix64: every bit depends on every bit.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// fill and equal cost one multiplication for 8 bytes.
func fill(b []byte, seed uint64) bool {
	for ; len(b) >= 8; b = b[8:] {
		seed = seed*0xD1342543DE82EF95 + 1
		binary.LittleEndian.PutUint64(b, seed)
	}
	return true
}

func equal(b []byte, seed uint64) bool {
	for ; len(b) >= 8; b = b[8:] {
		seed = seed*0xD1342543DE82EF95 + 1
		if binary.LittleEndian.Uint64(b) != seed {
			return false
		}
	}
	return true
}
