package placement

import (
	"errors"
	"strings"
	"testing"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
)

// lies gives an engine blocks of so many tokens of one dtype, described.
func lies(t *testing.T, block uint32, dtype layout.DType) func(*ledger.Registered) {
	t.Helper()
	d := layout.Described{Layout: layout.Layout{BlockTokens: block, Parallel: 1, Caches: []layout.Cache{{Name: "kv", Layers: 2, KVHeads: 2,
		HeadDim: 16, DType: dtype, Packing: layout.PackedKV, Order: layout.NHD}}}, Model: layout.Model{Heads: []uint32{2}}}
	encoded, err := rpc.EncodeLayout(d)
	if err != nil {
		t.Fatal(err)
	}
	name := d.Layout.Fingerprint()
	return func(e *ledger.Registered) { e.Layout, e.Described = name[:], encoded }
}

func TestAnEqualLayoutIsPreferredAndAnotherOneIsReshaped(t *testing.T) {
	small, large := lies(t, 16, "float32"), lies(t, 128, "float32")
	f := fleet(p("p1", small), p("p2", small), p("p3", large, queued(900)), d("d1", large))
	f.Layouts = new(Layouts)
	c, err := Place(request(), f, first) // of all three it would draw p1 and p2
	if err != nil || c.P.ID != "p3" || c.Against != nil || c.Candidates != [2]int{1, 1} {
		t.Fatalf("%+v, %v", c, err)
	}
	f.Engines = []ledger.Registered{p("p1", small), d("d1", large)}
	for range 2 { // made, then remembered
		if c, err = Place(request(), f, first); err != nil || c.P.ID != "p1" {
			t.Fatalf("blocks of 16 and of 128 tokens are not paired: %v", err)
		}
	}
}

func TestAnImpossiblePairIsRefusedByTheNameOfWhatDiffers(t *testing.T) {
	small := lies(t, 16, "float32")
	liar := func(e *ledger.Registered) { small(e); e.Layout = []byte{9} }
	for want, other := range map[string]func(*ledger.Registered){
		"dtype of cache 0": lies(t, 16, "float16"), "not described": shaped(2), "names another": liar,
	} {
		_, err := Place(request(), fleet(p("p1", small), d("d1", other)), first)
		var refused *Refusal
		if !errors.As(err, &refused) || refused.Reason != ReasonLayout || !strings.Contains(refused.Detail, want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
