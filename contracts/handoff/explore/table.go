package explore

import "math/bits"

// table is a set of states told apart by 64 bits of their hash (hash
// compaction), each with a word of the search. Open addressing, so that a
// hundred million states fit into some two gigabytes.
type table struct {
	keys  []uint64 // 0: empty
	words []uint32
	used  int
}

func newTable() *table { return &table{keys: make([]uint64, 1<<12), words: make([]uint32, 1<<12)} }

// at finds the place of a key, or the empty one where it belongs.
func (t *table) at(k uint64) int {
	mask := uint64(len(t.keys) - 1)
	i := k & mask
	for t.keys[i] != 0 && t.keys[i] != k {
		i = (i + 1) & mask
	}
	return int(i)
}

func (t *table) get(k uint64) (uint32, bool) {
	i := t.at(k)
	return t.words[i], t.keys[i] != 0
}

func (t *table) set(k uint64, word uint32) {
	i := t.at(k)
	if t.keys[i] == 0 {
		if t.used++; t.used > len(t.keys)/4*3 {
			t.grow()
			i = t.at(k)
		}
	}
	t.keys[i], t.words[i] = k, word
}

func (t *table) grow() {
	old := *t
	t.keys, t.words = make([]uint64, 2*len(old.keys)), make([]uint32, 2*len(old.keys))
	for i, k := range old.keys {
		if k != 0 {
			j := t.at(k)
			t.keys[j], t.words[j] = k, old.words[i]
		}
	}
}

// Collision is a bound on the probability that two of n states were taken for
// one: n² / 2^65.
func Collision(n int) float64 {
	hi, lo := bits.Mul64(uint64(n), uint64(n))
	return (float64(hi)*0x1p64 + float64(lo)) * 0x1p-65
}
