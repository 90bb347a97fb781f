package compute

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/paged"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSynthetic(t *testing.T, o SyntheticOptions) *Synthetic {
	t.Helper()
	s, err := NewSynthetic(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEnginesThatDifferHaveOtherShapes(t *testing.T) {
	transformer, err := NewTransformer()
	if err != nil {
		t.Fatal(err)
	}
	var seen []handoff.Shape
	for _, c := range []Compute{transformer, newSynthetic(t, SyntheticOptions{}), newSynthetic(t, SyntheticOptions{Layers: 3}),
		newSynthetic(t, SyntheticOptions{TokenBytes: 32}), newSynthetic(t, SyntheticOptions{Revision: "synthetic-2"})} {
		l := State(c)
		if err := l.Validate(); err != nil {
			t.Fatalf("%T: %s", c, err)
		}
		shape := l.Shape(c.Revision(), 40)
		for _, other := range seen {
			if shape.Match(other) == nil {
				t.Errorf("%T: %+v would be handed to another engine", c, shape)
			}
		}
		seen = append(seen, shape)
		room := c.Layout(1, 1)
		if g := shape.Groups[0]; int(g.Layers) != room.Layers || int(g.BlockBytes) != room.RunBytes || int(shape.Items[0].Bytes) != room.RingBytes {
			t.Errorf("%T: %+v does not fit its arena %+v", c, shape, room)
		}
	}
	if State(newSynthetic(t, SyntheticOptions{Context: 4096})).Fingerprint() != State(newSynthetic(t, SyntheticOptions{})).Fingerprint() {
		t.Error("how much an engine has room for is not a matter of layout")
	}
}

func TestSizesOutOfBoundsAreRefused(t *testing.T) {
	for _, o := range []SyntheticOptions{{Layers: -1}, {Layers: 257}, {TokenBytes: 12}, {TokenBytes: 1 << 20}, {Context: -5}} {
		if _, err := NewSynthetic(o); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// The state of one attempt is no other's: handoff, epoch and nonce all count.
func TestTheStateOfAnotherAttemptIsNeverDecoded(t *testing.T) {
	s := newSynthetic(t, SyntheticOptions{})
	l := s.Layout(8, 1)
	arena, err := paged.New(l, make([]byte, l.Bytes()), paged.Options{})
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := arena.Allocate(8)
	if err != nil {
		t.Fatal(err)
	}
	q, err := arena.Open(nil, blocks)
	if err != nil {
		t.Fatal(err)
	}
	own := handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 5}
	p, err := s.Prefill(q, own, make([]int, 50), 0, Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{30, 20} {
		if err := p.Chunk(n, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	for _, other := range []handoff.Attempt{{Handoff: "i", Epoch: 1, Nonce: 5}, {Handoff: "h", Epoch: 2, Nonce: 5}, {Handoff: "h", Epoch: 1, Nonce: 6}} {
		if _, _, err := s.Decode(q, other, 50).Step(); handoff.CodeOf(err) != handoff.CodeIntegrity {
			t.Errorf("%s: %v", other, err)
		}
	}
	d := s.Decode(q, own, 50)
	for i := range 70 { // into blocks that the prompt did not reach
		if text, end, err := d.Step(); err != nil || end || len(text) < 3 {
			t.Fatalf("step %d: %q %v %v", i, text, end, err)
		}
	}
	if s.Broken() != 3 {
		t.Errorf("%d broken", s.Broken())
	}
	longer := s.Decode(q, own, 51) // one position more than was computed
	if _, _, err := longer.Step(); err != nil {
		t.Error("positions that the decode wrote are its own, too:", err)
	}
}
