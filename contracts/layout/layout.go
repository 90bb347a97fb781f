// Package layout describes how an engine lays out the state of a sequence, so
// that two engines know before the first byte whether a piece of one is a piece
// of the other (S7). It says nothing of how much room an engine has or where a
// block lies: that is each side's own affair. Pure.
//
// Where layouts differ, a Plan says how the bytes of one become those of the
// other, piece of P by piece of P, or why they cannot; transferd carries it out.
package layout

import "github.com/surehand/surehand/contracts/handoff"

// DType is the element type of a group's KV, as it lies in memory.
type DType string

// The element types and their widths in bits.
var dtypes = map[DType]uint32{"float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3": 8, "float8_e5m2": 8, "int8": 8}

// Bits is the width of one element, 0 for a type that is not known here.
func (d DType) Bits() uint32 { return dtypes[d] }

// Packing says how K and V of a block lie.
type Packing string

const (
	PackedKV Packing = "packed" // K and V of a block in one piece, K first
	ApartKV  Packing = "apart"  // K and V are pieces of their own: twice the layers
	Latent   Packing = "latent" // one compressed vector a token instead of K and V
)

// Order is the order of the axes inside a block of one layer.
type Order string

const (
	NHD Order = "nhd" // token, head, dimension
	HND Order = "hnd" // head, token, dimension
)

// Cache is the KV of some layers that share one shape.
type Cache struct {
	Name    string
	Layers  uint32
	KVHeads uint32 // of one rank
	HeadDim uint32 // of a latent cache: the width of its vector
	DType   DType
	Packing Packing
	Order   Order
	// Interior names an order inside a head that depends on the machine, such as
	// that of a kernel's instruction set; empty: plain row-major.
	Interior string
	// Window is the number of tokens that a sliding-window ring keeps; its state
	// is one item of the manifest. Zero: paged, every token is kept.
	Window uint32
}

// Item is a piece of state besides KV.
type Item struct {
	Class string
	Bytes uint32
}

// Layout is everything that decides where a byte of a sequence's state lies.
type Layout struct {
	BlockTokens uint32
	Parallel    uint32 // tensor-parallel ranks; each rank moves its own pieces
	Caches      []Cache
	Items       []Item
}

// Limits of a layout beyond those of a shape.
const (
	MaxBlockTokens = 4096
	MaxParallel    = 64
	MaxLayers      = 4096
	MaxHeads       = 1024
	MaxHeadDim     = 65536
	MaxWindow      = 1 << 20
)

// pieceLayers is how many pieces a block of the cache is.
func (c Cache) pieceLayers() uint32 {
	if c.Packing == ApartKV {
		return 2 * c.Layers
	}
	return c.Layers
}

// tokenBits is the state of one token in one piece, in bits.
func (c Cache) tokenBits() uint64 {
	n := uint64(c.KVHeads) * uint64(c.HeadDim) * uint64(c.DType.Bits())
	if c.Packing == PackedKV {
		n *= 2
	}
	return n
}

// pieceBytes is the size of one block of one layer, or of a whole ring.
func (c Cache) pieceBytes(blockTokens uint32) uint64 {
	if c.Window > 0 {
		return c.tokenBits() / 8 * uint64(c.Window) * uint64(c.pieceLayers())
	}
	return c.tokenBits() / 8 * uint64(blockTokens)
}

// Shape is what the handoff of so many prompt tokens of this layout moves.
// Paged caches are its groups; rings come first of its items.
func (l Layout) Shape(revision string, tokens uint32) handoff.Shape {
	s := handoff.Shape{Revision: revision, Layout: l.Fingerprint(), Tokens: tokens}
	blocks := (uint64(tokens) + uint64(l.BlockTokens) - 1) / uint64(l.BlockTokens)
	for _, c := range l.Caches {
		if c.Window > 0 {
			s.Items = append(s.Items, handoff.Item{Class: c.Name, Bytes: uint32(c.pieceBytes(l.BlockTokens))})
			continue
		}
		s.Groups = append(s.Groups, handoff.Group{Name: c.Name, Layers: c.pieceLayers(), Blocks: uint32(blocks), BlockBytes: uint32(c.pieceBytes(l.BlockTokens))})
	}
	for _, i := range l.Items {
		s.Items = append(s.Items, handoff.Item(i))
	}
	return s
}

// Validate refuses a layout that is malformed or over a limit.
func (l Layout) Validate() error {
	switch {
	case l.BlockTokens == 0 || l.BlockTokens > MaxBlockTokens:
		return handoff.Errorf(handoff.CodeInvalid, "block of %d tokens, want 1..%d", l.BlockTokens, MaxBlockTokens)
	case l.Parallel == 0 || l.Parallel > MaxParallel:
		return handoff.Errorf(handoff.CodeInvalid, "%d parallel ranks, want 1..%d", l.Parallel, MaxParallel)
	case len(l.Caches) > handoff.MaxGroups:
		return handoff.Errorf(handoff.CodeTooLarge, "%d caches, limit %d", len(l.Caches), handoff.MaxGroups)
	case len(l.Items)+len(l.Caches) > handoff.MaxItems:
		return handoff.Errorf(handoff.CodeTooLarge, "%d items and %d caches, limit %d", len(l.Items), len(l.Caches), handoff.MaxItems)
	case len(l.Caches)+len(l.Items) == 0:
		return handoff.Errorf(handoff.CodeInvalid, "layout has neither caches nor items")
	}
	names := map[string]bool{}
	for _, c := range l.Caches {
		if err := c.validate(l.BlockTokens); err != nil {
			return err
		}
		if names[c.Name] {
			return handoff.Errorf(handoff.CodeInvalid, "cache %q is listed twice", c.Name)
		}
		names[c.Name] = true
	}
	for _, i := range l.Items {
		if len(i.Class) == 0 || len(i.Class) > handoff.MaxNameBytes || i.Bytes == 0 || i.Bytes > handoff.MaxPieceBytes || names[i.Class] {
			return handoff.Errorf(handoff.CodeInvalid, "item %q of %d bytes", i.Class, i.Bytes)
		}
		names[i.Class] = true
	}
	return nil
}

func (c Cache) validate(blockTokens uint32) error {
	known := c.Packing == PackedKV || c.Packing == ApartKV || c.Packing == Latent
	switch {
	case len(c.Name) == 0 || len(c.Name) > handoff.MaxNameBytes || len(c.Interior) > handoff.MaxNameBytes:
		return handoff.Errorf(handoff.CodeInvalid, "cache name of %d bytes, interior of %d", len(c.Name), len(c.Interior))
	case c.Layers == 0 || c.Layers > MaxLayers, c.KVHeads == 0 || c.KVHeads > MaxHeads, c.HeadDim == 0 || c.HeadDim > MaxHeadDim:
		return handoff.Errorf(handoff.CodeInvalid, "cache %q: %d layers, %d heads, dimension %d", c.Name, c.Layers, c.KVHeads, c.HeadDim)
	case c.DType.Bits() == 0, !known, c.Order != NHD && c.Order != HND:
		return handoff.Errorf(handoff.CodeInvalid, "cache %q: %q, %q, %q are not all known", c.Name, c.DType, c.Packing, c.Order)
	case c.Packing == Latent && c.KVHeads != 1:
		return handoff.Errorf(handoff.CodeInvalid, "cache %q: a latent vector has no heads, %d given", c.Name, c.KVHeads)
	case c.Window > MaxWindow || c.Window%blockTokens != 0:
		return handoff.Errorf(handoff.CodeInvalid, "cache %q: window of %d tokens, want whole blocks, at most %d", c.Name, c.Window, MaxWindow)
	case c.pieceBytes(blockTokens) > handoff.MaxPieceBytes:
		return handoff.Errorf(handoff.CodeTooLarge, "cache %q: a piece of %d bytes, limit %d", c.Name, c.pieceBytes(blockTokens), handoff.MaxPieceBytes)
	}
	return nil
}
