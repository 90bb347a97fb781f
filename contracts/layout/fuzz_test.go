package layout

import "testing"

// FuzzLayout makes layouts of whatever the bytes say: validation never panics,
// and a layout that it accepts has a shape that is accepted, or refused for its
// size alone, and is compatible with itself.
func FuzzLayout(f *testing.F) {
	f.Add(uint32(16), uint32(1), uint32(2), uint32(16), uint32(0), "float32", "packed", "nhd", uint32(40))
	f.Add(uint32(4096), uint32(64), uint32(1024), uint32(65536), uint32(1<<20), "int8", "apart", "hnd", uint32(1<<21))
	f.Fuzz(func(t *testing.T, block, parallel, heads, dim, window uint32, dtype, packing, order string, tokens uint32) {
		l := Layout{BlockTokens: block, Parallel: parallel, Caches: []Cache{{Name: "kv", Layers: 1 + heads%5, KVHeads: heads, HeadDim: dim,
			DType: DType(dtype), Packing: Packing(packing), Order: Order(order), Window: window}}}
		if l.Validate() != nil {
			if Compatible(l, l) == nil {
				t.Fatal("a malformed layout is compatible")
			}
			return
		}
		if err := Compatible(l, l); err != nil {
			t.Fatal(err)
		}
		s := l.Shape("m", tokens)
		for _, g := range s.Groups {
			if g.BlockBytes == 0 && l.Caches[0].DType.Bits() >= 8 {
				t.Fatalf("%+v has empty pieces", l)
			}
		}
	})
}
