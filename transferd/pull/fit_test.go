package pull

import (
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/wire"
)

// A pair of layouts is planned once, however many handoffs it has; which pair it is,
// what P sent says, and a shape that names another layout is refused.
func TestAPairOfLayoutsIsPlannedOnce(t *testing.T) {
	cut := func(ranks uint32) layout.Described {
		return layout.Described{Layout: layout.Layout{BlockTokens: 16, Parallel: ranks, Caches: []layout.Cache{
			{Name: "kv", Layers: 1, KVHeads: 4 / ranks, HeadDim: 8, DType: "bfloat16", Packing: layout.PackedKV, Order: layout.NHD}}}, Model: layout.Model{Heads: []uint32{4}}}
	}
	encode := func(d layout.Described) []byte {
		b, err := rpc.EncodeLayout(d)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	from := func(d layout.Described) wire.Source {
		return wire.Source{Shape: handoff.Shape{Layout: d.Layout.Fingerprint()}, Layout: encode(d)}
	}
	var known plans
	get := func(s wire.Source, own layout.Described) *layout.Reshard {
		r, err := known.get(s, own, encode(own))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := get(from(cut(4)), cut(1))
	if get(from(cut(4)), cut(1)) != first || len(known.known) != 1 {
		t.Fatal("planned again")
	}
	if get(from(cut(1)), cut(4)) == first || get(from(cut(2)), cut(1)) == first || len(known.known) != 3 {
		t.Fatal("two pairs have one plan")
	}
	for range 2 { // before it is known, and after
		lie := from(cut(4))
		lie.Shape.Layout[0] ^= 1
		if _, err := known.get(lie, cut(2), encode(cut(2))); handoff.CodeOf(err) != handoff.CodeMismatch {
			t.Fatal(err)
		}
		get(from(cut(4)), cut(2))
	}
	for ranks := range uint32(maxPlans) {
		d := cut(4)
		d.Layout.Caches[0].Layers = ranks + 2
		own := d
		own.Layout.BlockTokens = 32
		get(from(d), own)
	}
	if len(known.known) > maxPlans {
		t.Fatal(len(known.known))
	}
}
