package handoff

import (
	"math/rand"
	"testing"
)

func randomShape(r *rand.Rand) Shape {
	s := Shape{Revision: "m", Layout: Digest{1}, Tokens: 1 + uint32(r.Intn(100))}
	for range 1 + r.Intn(3) {
		s.Groups = append(s.Groups, Group{"g", 1 + uint32(r.Intn(4)), 1 + uint32(r.Intn(4)), 64})
	}
	for range r.Intn(3) {
		s.Items = append(s.Items, Item{"i", 8})
	}
	return s
}

func TestPlaceIsTheInverseOfPiece(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 200 {
		s := randomShape(r)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		var bytes uint64
		for i := range s.Pieces() {
			p, ok := s.Place(i)
			back := s.Piece
			switch {
			case !ok:
				t.Fatalf("piece %d of %d has no place", i, s.Pieces())
			case p.Group >= 0 && back(p.Group, p.Layer, p.Block) != i, p.Group < 0 && s.ItemPiece(p.Item) != i:
				t.Fatalf("piece %d is at %+v and back elsewhere", i, p)
			}
			bytes += uint64(p.Bytes)
		}
		if _, ok := s.Place(s.Pieces()); ok || bytes != s.Bytes() {
			t.Fatal("pieces do not cover the shape")
		}
	}
}

func TestShapesOverALimitAreRefused(t *testing.T) {
	good := func() Shape {
		return Shape{Revision: "m", Layout: Digest{1}, Tokens: 1, Groups: []Group{{"g", 1, 1, 1}}, Items: []Item{{"i", 1}}}
	}
	for name, f := range map[string]func(*Shape){
		"revision": func(s *Shape) { s.Revision = "" },
		"layout":   func(s *Shape) { s.Layout = Digest{} },
		"tokens":   func(s *Shape) { s.Tokens = MaxPromptTokens + 1 },
		"groups":   func(s *Shape) { s.Groups = make([]Group, MaxGroups+1) },
		"items":    func(s *Shape) { s.Items = make([]Item, MaxItems+1) },
		"nothing":  func(s *Shape) { s.Groups, s.Items = nil, nil },
		"no name":  func(s *Shape) { s.Groups[0].Name = "" },
		"bytes":    func(s *Shape) { s.Groups[0].BlockBytes = MaxPieceBytes + 1 },
		"item":     func(s *Shape) { s.Items[0].Bytes = 0 },
		"pieces":   func(s *Shape) { s.Groups[0].Layers, s.Groups[0].Blocks = 2048, 1024 },
		"wraps": func(s *Shape) {
			s.Groups = nil
			for range 4 {
				s.Groups = append(s.Groups, Group{"g", 1 << 31, 1 << 31, 1})
			}
		},
	} {
		s := good()
		if f(&s); s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := good().Validate(); err != nil {
		t.Error(err)
	}
}

func TestAnyDifferenceIsAMismatch(t *testing.T) {
	base := Shape{Revision: "m", Layout: Digest{1}, Tokens: 4, Groups: []Group{{"g", 1, 2, 8}}, Items: []Item{{"i", 8}}}
	if base.Match(base) != nil {
		t.Fatal("a shape differs from itself")
	}
	for i, f := range []func(*Shape){
		func(s *Shape) { s.Revision = "n" }, func(s *Shape) { s.Layout = Digest{2} }, func(s *Shape) { s.Tokens++ },
		func(s *Shape) { s.Groups = append(s.Groups, Group{"h", 1, 1, 1}) }, func(s *Shape) { s.Items = nil },
		func(s *Shape) { s.Groups = []Group{{"g", 2, 1, 8}} }, func(s *Shape) { s.Items = []Item{{"j", 8}} },
	} {
		other := base
		f(&other)
		if CodeOf(base.Match(other)) != CodeMismatch {
			t.Errorf("change %d matches", i)
		}
		m, n := Manifest{testPlan(1, 1).Attempt, base, []uint32{1, 2, 3}}, Manifest{testPlan(1, 1).Attempt, other, []uint32{1, 2, 3}}
		if m.Digest() == n.Digest() {
			t.Errorf("change %d has the same manifest digest", i)
		}
	}
	m := Manifest{testPlan(1, 1).Attempt, base, []uint32{1, 2, 3}}
	if m.Validate() != nil || (Manifest{m.Attempt, base, nil}).Validate() == nil || (Manifest{Attempt{}, base, m.Digests}).Validate() == nil {
		t.Error("manifest validation")
	}
	n := m
	n.Digests = []uint32{1, 2, 4}
	o := m
	o.Attempt.Nonce++
	if m.Digest() == n.Digest() || m.Digest() == o.Digest() {
		t.Error("manifest digests collide")
	}
}

func TestPlansAndIDsAreBounded(t *testing.T) {
	p := testPlan(1, 1)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for i, f := range []func(*Plan){
		func(p *Plan) { p.Attempt.Epoch = 0 }, func(p *Plan) { p.Attempt.Epoch = MaxEpoch + 1 }, func(p *Plan) { p.Attempt.Nonce = 0 },
		func(p *Plan) { p.Attempt.Handoff = "" }, func(p *Plan) { p.P.Node = "UPPER" }, func(p *Plan) { p.D.Incarnation = 0 },
		func(p *Plan) { p.D.Engine = EngineID(make([]byte, MaxIDBytes+1)) }, func(p *Plan) { p.BodyDigest = Digest{} },
	} {
		q := p
		if f(&q); q.Validate() == nil {
			t.Errorf("change %d accepted", i)
		}
	}
	if a, b := p.Attempt.Operation("commit"), testPlan(1, 2).Attempt.Operation("commit"); a == b {
		t.Error("operation ids of two nonces are equal")
	}
}
