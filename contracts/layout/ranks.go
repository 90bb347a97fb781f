package layout

import (
	"fmt"

	"github.com/surehand/surehand/contracts/handoff"
)

// Whole is what an engine moves whose ranks all lie in one memory: the groups of
// its first rank, of its second, and so on, then their items in the same order.
// With one rank it is Shape.
func (l Layout) Whole(revision string, tokens uint32) handoff.Shape {
	one := l.Shape(revision, tokens)
	if l.Parallel <= 1 {
		return one
	}
	s := handoff.Shape{Revision: revision, Layout: one.Layout, Tokens: tokens}
	for rank := range l.Parallel {
		for _, g := range one.Groups {
			g.Name = fmt.Sprintf("%s/%d", g.Name, rank)
			s.Groups = append(s.Groups, g)
		}
		for _, i := range one.Items {
			i.Class = fmt.Sprintf("%s/%d", i.Class, rank)
			s.Items = append(s.Items, i)
		}
	}
	return s
}

// side is one engine's layout for a prompt of a known length.
type side struct {
	Layout
	shape  handoff.Shape // of one rank
	paged  uint32        // pieces of its groups
	groups []int         // cache of each group
	items  []int         // cache of each item that is a ring, -1 for any other
}

func newSide(l Layout, tokens uint32) side {
	s := side{Layout: l, shape: l.Shape("", tokens)}
	for i, c := range l.Caches {
		if c.Window > 0 {
			s.items = append(s.items, i)
		} else {
			s.groups = append(s.groups, i)
		}
	}
	for range l.Items {
		s.items = append(s.items, -1)
	}
	s.paged = s.shape.Pieces() - uint32(len(s.items))
	return s
}

func (s side) pieces() uint32 { return s.Parallel * s.shape.Pieces() }

// whole numbers a rank's piece among those of all ranks; find is its inverse.
func (s side) whole(rank, piece uint32) uint32 {
	if piece < s.paged {
		return rank*s.paged + piece
	}
	return s.Parallel*s.paged + rank*uint32(len(s.items)) + piece - s.paged
}

func (s side) find(whole uint32) (rank, piece uint32) {
	if all := s.Parallel * s.paged; whole >= all {
		n := uint32(len(s.items))
		return (whole - all) / n, s.paged + (whole-all)%n
	}
	return whole / s.paged, whole % s.paged
}

// cache says which cache a place is of, -1 for an item that is none.
func (s side) cache(p handoff.Place) int {
	if p.Group >= 0 {
		return s.groups[p.Group]
	}
	return s.items[p.Item]
}

// piece of a rank that holds a block of a cache's layer, and where in it the block
// begins: a ring is one item, its layers one after the other.
func (s side) piece(cache int, layer, block uint32) (piece, at uint32) {
	c := s.Caches[cache]
	if c.Window > 0 {
		return s.shape.ItemPiece(index(s.items, cache)), (layer*c.Window + block*s.BlockTokens) * uint32(c.tokenBits()/8)
	}
	return s.shape.Piece(index(s.groups, cache), layer, block), 0
}

func index(list []int, cache int) int {
	for i, c := range list {
		if c == cache {
			return i
		}
	}
	return -1
}

// vector finds the vector of one token and head of K (part 0) or V: its layer of
// pieces, its block, and where in the block it begins. K and V apart are layers of
// pieces: K of layer l is 2l, its V 2l+1.
func (s side) vector(cache int, layer, part, token, head uint32) (pieceLayer, block, at uint32) {
	c := s.Caches[cache]
	width := c.HeadDim * c.DType.Bits() / 8
	inside := token % s.BlockTokens
	place := inside*c.KVHeads + head
	if c.Order == HND {
		place = head*s.BlockTokens + inside
	}
	if c.Packing == ApartKV {
		layer, part = 2*layer+part, 0
	}
	return layer, token / s.BlockTokens, (part*s.BlockTokens*c.KVHeads + place) * width
}

// holds is how many bytes of a piece the prompt fills.
func (s side) holds(whole uint32) uint32 {
	_, own := s.find(whole)
	p, _ := s.shape.Place(own)
	if p.Group < 0 {
		return p.Bytes
	}
	c := s.Caches[s.groups[p.Group]]
	return uint32(c.tokenBits()/8) * min(s.BlockTokens, s.shape.Tokens-p.Block*s.BlockTokens)
}
