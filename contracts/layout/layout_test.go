package layout

import (
	"errors"
	"math/rand"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/model"
)

// reference is the reference engine's layout in these words: float32, K of 16
// tokens then V, three paged layers, one sliding-window layer, small items.
func reference() Layout {
	kv := Cache{Name: "paged", Layers: 3, KVHeads: 2, HeadDim: 16, DType: "float32", Packing: PackedKV, Order: NHD}
	ring := kv
	ring.Name, ring.Layers, ring.Window = "ring", 1, 128
	return Layout{BlockTokens: 16, Parallel: 1, Caches: []Cache{kv, ring},
		Items: []Item{{"ngram_history", 6}, {"sampler", 24}, {"first_token", 4}}}
}

func TestTheReferenceEnginesLayoutIsDescribed(t *testing.T) {
	l, c := reference(), model.Shape()
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	s := l.Shape("r", 40)
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	kv := s.Groups[0]
	if int(kv.Layers) != c.PagedLayers || int(kv.BlockBytes) != c.RunBytes || kv.Blocks != 3 || int(l.BlockTokens) != c.BlockTokens {
		t.Errorf("group %+v, engine %+v", kv, c)
	}
	if int(s.Items[0].Bytes) != c.RingBytes || int(l.Caches[1].Window) != c.Window {
		t.Errorf("ring of %d bytes, engine %d", s.Items[0].Bytes, c.RingBytes)
	}
	for i, it := range []model.Item{model.HistoryItem, model.SamplerItem, model.FirstTokenItem} {
		if s.Items[i+1].Class != it.Name || int(s.Items[i+1].Bytes) != it.Bytes {
			t.Errorf("item %+v, engine %+v", s.Items[i+1], it)
		}
	}
}

// changes are single edits that each make another layout.
var changes = map[string]func(*Layout){
	"block tokens": func(l *Layout) { l.BlockTokens = 32 },
	"parallel":     func(l *Layout) { l.Parallel = 2 },
	"name":         func(l *Layout) { l.Caches[0].Name = "kv" },
	"layers":       func(l *Layout) { l.Caches[0].Layers++ },
	"heads":        func(l *Layout) { l.Caches[0].KVHeads++ },
	"dimension":    func(l *Layout) { l.Caches[0].HeadDim++ },
	"dtype":        func(l *Layout) { l.Caches[0].DType = "bfloat16" },
	"packing":      func(l *Layout) { l.Caches[0].Packing = ApartKV },
	"order":        func(l *Layout) { l.Caches[0].Order = HND },
	"interior":     func(l *Layout) { l.Caches[0].Interior = "amx" },
	"window":       func(l *Layout) { l.Caches[1].Window = 256 },
	"one cache":    func(l *Layout) { l.Caches = l.Caches[:1] },
	"swapped":      func(l *Layout) { l.Caches[0], l.Caches[1] = l.Caches[1], l.Caches[0] },
	"item class":   func(l *Layout) { l.Items[0].Class = "history" },
	"item bytes":   func(l *Layout) { l.Items[0].Bytes++ },
	"fewer items":  func(l *Layout) { l.Items = l.Items[:2] },
	"no items":     func(l *Layout) { l.Items = nil },
}

func TestAnyChangeIsAMismatchWithItsReason(t *testing.T) {
	seen := map[handoff.Digest]string{reference().Fingerprint(): "the reference"}
	for name, f := range changes {
		l := reference()
		f(&l)
		for _, err := range []error{Compatible(reference(), l), Compatible(l, reference())} {
			var m *Mismatch
			if !errors.As(err, &m) || handoff.CodeOf(err) != handoff.CodeMismatch || m.P == m.D {
				t.Errorf("%s: %v", name, err)
			}
		}
		if other, ok := seen[l.Fingerprint()]; ok {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[l.Fingerprint()] = name
	}
}

func randomLayout(r *rand.Rand) Layout {
	l := Layout{BlockTokens: 1 << r.Intn(6), Parallel: 1 + uint32(r.Intn(2))}
	names := []string{"a", "b", "c"}
	for _, n := range names[:1+r.Intn(2)] {
		c := Cache{Name: n, Layers: 1 + uint32(r.Intn(3)), KVHeads: 1, HeadDim: 8, DType: "float16",
			Packing: []Packing{PackedKV, ApartKV, Latent}[r.Intn(3)], Order: []Order{NHD, HND}[r.Intn(2)]}
		if r.Intn(2) == 0 {
			c.Window = 2 * l.BlockTokens
		}
		l.Caches = append(l.Caches, c)
	}
	for _, n := range []string{"x", "y"}[:r.Intn(3)] {
		l.Items = append(l.Items, Item{n, 1 + uint32(r.Intn(3))})
	}
	return l
}

// Compatible and Fingerprint say the same, Compatible is symmetric and
// reflexive, and compatible layouts have equal shapes.
func TestCompatibleMeansEqualFingerprints(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	fits := 0
	for range 20000 {
		p, d := randomLayout(r), randomLayout(r)
		same := Compatible(p, d) == nil
		if same != (p.Fingerprint() == d.Fingerprint()) || same != (Compatible(d, p) == nil) || Compatible(p, p) != nil {
			t.Fatalf("%+v and %+v", p, d)
		}
		if same {
			fits++
			if err := p.Shape("m", 33).Match(d.Shape("m", 33)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Shape("m", 33).Validate(); err != nil {
			t.Fatal(err)
		}
	}
	if fits == 0 {
		t.Error("no two random layouts fit: the property was not tried")
	}
}

// The bytes of a shape are those of its tokens, rounded up to blocks.
func TestShapesHoldEveryTokenOnce(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for range 2000 {
		l, tokens := randomLayout(r), uint32(1+r.Intn(200))
		blocks := uint64((tokens + l.BlockTokens - 1) / l.BlockTokens)
		var want uint64
		for _, c := range l.Caches {
			per := uint64(c.Layers) * uint64(c.KVHeads) * uint64(c.HeadDim) * uint64(c.DType.Bits()) / 8
			if c.Packing != Latent {
				per *= 2
			}
			if c.Window > 0 {
				want += per * uint64(c.Window)
			} else {
				want += per * blocks * uint64(l.BlockTokens)
			}
		}
		for _, i := range l.Items {
			want += uint64(i.Bytes)
		}
		if got := l.Shape("m", tokens).Bytes(); got != want {
			t.Fatalf("%+v of %d tokens: %d bytes, want %d", l, tokens, got, want)
		}
	}
}

func TestMalformedLayoutsAreRefused(t *testing.T) {
	for name, f := range map[string]func(*Layout){
		"no block":       func(l *Layout) { l.BlockTokens = 0 },
		"no ranks":       func(l *Layout) { l.Parallel = 0 },
		"nothing":        func(l *Layout) { l.Caches, l.Items = nil, nil },
		"unknown dtype":  func(l *Layout) { l.Caches[0].DType = "float7" },
		"unknown order":  func(l *Layout) { l.Caches[0].Order = "" },
		"unknown pack":   func(l *Layout) { l.Caches[0].Packing = "" },
		"no layers":      func(l *Layout) { l.Caches[0].Layers = 0 },
		"twice":          func(l *Layout) { l.Caches[1].Name = "paged" },
		"item as cache":  func(l *Layout) { l.Items[0].Class = "ring" },
		"latent heads":   func(l *Layout) { l.Caches[0].Packing = Latent },
		"part of block":  func(l *Layout) { l.Caches[1].Window = 100 },
		"large piece":    func(l *Layout) { l.Caches[0].HeadDim = MaxHeadDim },
		"large ring":     func(l *Layout) { l.Caches[1].Window = MaxWindow },
		"too many":       func(l *Layout) { l.Caches = make([]Cache, handoff.MaxGroups+1) },
		"too many items": func(l *Layout) { l.Items = make([]Item, handoff.MaxItems) },
		"empty item":     func(l *Layout) { l.Items[0].Bytes = 0 },
	} {
		l := reference()
		f(&l)
		if l.Validate() == nil || Compatible(l, reference()) == nil || Compatible(reference(), l) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
