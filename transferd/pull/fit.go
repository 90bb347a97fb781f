package pull

import (
	"slices"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
)

// fit is how the pieces of one source become the pieces of one target: one to one
// where the shapes are equal, else by a plan from layout to layout.
type fit struct {
	landing *fence.Landing
	source  handoff.Shape
	bound   *layout.Bound // nil: one to one
	mapped  bool          // D's memory has views

	held  map[uint32]bool // pieces of D that its engine vouches for: never written
	left  []uint32        // bytes that each piece of D still lacks; nil when one to one
	mark  []uint32        // of pieces of D: the last batch that touched it
	batch uint32
	parts []layout.Part
}

// newFit refuses a pair that cannot be, with the reason, before the first byte (S7).
func newFit(l *fence.Landing, s wire.Source, plans *plans) (*fit, error) {
	target := l.Shape()
	f := &fit{landing: l, source: s.Shape, mapped: l.View(0) != nil, held: map[uint32]bool{}}
	for _, p := range l.Held() {
		f.held[p] = true
	}
	err := s.Shape.Match(target)
	own, encoded := l.Layout()
	if err == nil || own == nil || len(s.Layout) == 0 || s.Shape.Layout == target.Layout {
		return f, err
	}
	if s.Shape.Revision != target.Revision || s.Shape.Tokens != target.Tokens {
		return nil, err
	}
	plan, err := plans.get(s, *own, encoded)
	if err != nil {
		return nil, err
	}
	f.bound = plan.For(target.Tokens)
	if err := s.Shape.Match(f.bound.Sources(target.Revision)); err != nil {
		return nil, handoff.Errorf(handoff.CodeMismatch, "P's shape is not of its layout: %s", err)
	}
	if err := f.bound.Targets(target.Revision).Match(target); err != nil {
		return nil, handoff.Errorf(handoff.CodeMismatch, "D's shape is not of its layout: %s", err)
	}
	f.left, f.mark = make([]uint32, target.Pieces()), make([]uint32, target.Pieces())
	for i := range f.left {
		f.left[i] = f.bound.Needs(uint32(i))
	}
	return f, nil
}

// length of a piece of P.
func (f *fit) length(piece uint32) uint32 {
	if f.bound == nil {
		return f.landing.Length(piece)
	}
	p, _ := f.source.Place(piece)
	return p.Bytes
}

// cut gives where a piece of P goes; valid until the next call.
func (f *fit) cut(piece uint32) []layout.Part {
	if f.bound == nil {
		f.parts = append(f.parts[:0], layout.Part{Target: piece, Bytes: f.landing.Length(piece)})
	} else {
		f.parts = f.bound.Parts(piece, f.parts[:0])
	}
	if len(f.held) > 0 {
		f.parts = slices.DeleteFunc(f.parts, func(c layout.Part) bool { return f.held[c.Target] })
	}
	return f.parts
}

// isUnneeded says that a piece of P need not be read.
func (f *fit) isUnneeded(piece uint32) bool {
	return (f.bound != nil || len(f.held) > 0) && len(f.cut(piece)) == 0
}

// direct gives the memory of D that a piece of P may be read straight into: it
// lies there in one run. Every other piece goes by a staging slot.
func (f *fit) direct(piece uint32) []byte {
	if !f.mapped {
		return nil
	}
	if f.bound == nil {
		if f.held[piece] {
			return nil
		}
		return f.landing.View(piece)
	}
	parts := f.cut(piece)
	if len(parts) != 1 || parts[0].Bytes != f.length(piece) {
		return nil
	}
	return f.landing.View(parts[0].Target)[parts[0].TargetAt:][:parts[0].Bytes:parts[0].Bytes]
}

// touched counts the pieces of D that the pieces of P write.
func (f *fit) touched(pieces []uint32) int {
	if f.bound == nil {
		return len(pieces)
	}
	f.batch++
	n := 0
	for _, p := range pieces {
		for _, c := range f.cut(p) {
			if f.mark[c.Target] != f.batch {
				f.mark[c.Target] = f.batch
				n++
			}
		}
	}
	return n
}

// filled takes what the pieces of P brought off what the pieces of D lack, and
// gives those that are whole now.
func (f *fit) filled(pieces []uint32) (whole []uint32) {
	if f.bound == nil {
		return pieces
	}
	for _, p := range pieces {
		for _, c := range f.cut(p) {
			if f.left[c.Target] -= c.Bytes; f.left[c.Target] == 0 {
				whole = append(whole, c.Target)
			}
		}
	}
	return whole
}

// spoiled gives the pieces of D that a landed piece of P is a part of, which must
// be filled again.
func (f *fit) spoiled(piece uint32) (targets []uint32) {
	for _, c := range f.cut(piece) {
		if f.bound != nil {
			f.left[c.Target] += c.Bytes
		}
		targets = append(targets, c.Target)
	}
	return targets
}

// maxPlans bounds the pairs of layouts that are remembered.
const maxPlans = 64

// plans are the plans of pairs of layouts that met before.
type plans struct {
	mu    sync.Mutex
	known map[string]*layout.Reshard
}

func (p *plans) get(s wire.Source, own layout.Described, encoded []byte) (*layout.Reshard, error) {
	key := string(s.Layout) + "\x00to\x00" + string(encoded)
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan := p.known[key]; plan != nil {
		if s.Shape.Layout != plan.Source() {
			return nil, misnamed(s, plan.Source())
		}
		return plan, nil
	}
	theirs, err := rpc.DecodeLayout(s.Layout)
	if err != nil {
		return nil, err
	}
	if got := theirs.Layout.Fingerprint(); got != s.Shape.Layout {
		return nil, misnamed(s, got)
	}
	plan, err := layout.Between(theirs, own)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeOf(err), "no way from P's layout to D's: %s", err)
	}
	if p.known == nil || len(p.known) >= maxPlans {
		p.known = map[string]*layout.Reshard{}
	}
	p.known[key] = plan
	return plan, nil
}

func misnamed(s wire.Source, is handoff.Digest) error {
	return handoff.Errorf(handoff.CodeMismatch, "P's layout is %s, its shape names %s", is, s.Shape.Layout)
}
