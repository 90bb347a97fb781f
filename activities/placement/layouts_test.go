package placement

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
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

// To reshape is a cost beside the others: an equal layout goes first where the way
// through its queue is not the longer one.
func TestAnEqualLayoutIsPreferredWhileItIsNotBusy(t *testing.T) {
	small, large := lies(t, 16, "float32"), lies(t, 128, "float32")
	layouts := new(Layouts)
	for name, c := range map[string]struct {
		ps   []ledger.Registered
		want handoff.EngineID
		of   int // that were left to draw from
	}{
		"both idle":                    {[]ledger.Registered{p("p1", small), p("p2", large)}, "p2", 1},
		"the draw does not miss it":    {[]ledger.Registered{p("p1", small), p("p2", small), p("p3", large)}, "p3", 1},
		"busy":                         {[]ledger.Registered{p("p1", small), p("p2", large, queued(900))}, "p1", 2},
		"busy, in flight from here":    {[]ledger.Registered{p("p0", small), p("px", large)}, "p0", 2},
		"both busy":                    {[]ledger.Registered{p("p1", small, queued(900)), p("p2", large, queued(900))}, "p2", 1},
		"slow":                         {[]ledger.Registered{p("p1", small), p("p2", large, rate(100))}, "p1", 2},
		"silent is not idle":           {[]ledger.Registered{p("p1", small), p("p2", large, silent)}, "p1", 2},
		"nobody has an equal layout":   {[]ledger.Registered{p("p1", small), p("p2", small, queued(900))}, "p1", 2},
		"the idle one of many is left": {[]ledger.Registered{p("p1", small), p("p2", large, queued(900)), p("p3", small, queued(950))}, "p1", 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleet(append(c.ps, d("d1", large))...)
			f.Layouts, f.InFlight = layouts, map[handoff.EngineID]uint64{"px": 900}
			got, err := Place(request(), f, first)
			if err != nil || got.P.ID != c.want || got.Candidates[1] != c.of {
				t.Fatalf("%+v, %v", got, err)
			}
		})
	}
}

func TestAnotherLayoutIsReshaped(t *testing.T) {
	small, large := lies(t, 16, "float32"), lies(t, 128, "float32")
	f := fleet(p("p1", small), d("d1", large))
	f.Layouts = new(Layouts)
	for range 2 { // made, then remembered
		if c, err := Place(request(), f, first); err != nil || c.P.ID != "p1" {
			t.Fatalf("blocks of 16 and of 128 tokens are not paired: %v", err)
		}
	}
}

// What D's daemon measured goes before what was assumed, pair by pair.
func TestReshapingCostsWhatItWasMeasuredToCost(t *testing.T) {
	small, large := p("p1", lies(t, 128, "float32")), d("d1", lies(t, 16, "float32"))
	other := d("d2", lies(t, 32, "float32"))
	f := fleet(small, large, other)
	f.Layouts = new(Layouts)
	cost := func(d ledger.Registered) float64 {
		term, ok := reshapeTerm(request(), f, small, d)
		if !ok || !term.Known {
			t.Fatalf("%+v", term)
		}
		return term.Value
	}
	assumed, beside := cost(large), cost(other)
	f.Layouts.Scattered(small, large, 100, 3*time.Second)
	if got := cost(large); got < 2.999 || got > 3.001 || assumed <= 0 || assumed > 0.1 {
		t.Errorf("%f s, after 3 s were measured; %f before", got, assumed)
	}
	f.Layouts.Scattered(small, large, 100, time.Second)
	if got := cost(large); got < 2.499 || got > 2.501 {
		t.Errorf("%f s, after 1 s was measured as well", got)
	}
	if got := cost(other); got != beside {
		t.Errorf("another pair costs %f s now, not %f", got, beside)
	}
	f.Layouts.Scattered(small, p("p2", lies(t, 128, "float32")), 100, time.Second) // equal: nothing to learn
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
