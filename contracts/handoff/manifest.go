package handoff

import (
	"crypto/sha256"
	"encoding/binary"
)

// Group is the paged KV of one cache group: Layers × Blocks pieces of
// BlockBytes each. Blocks are numbered logically, 0 is the prompt's first;
// where they lie is each side's own affair.
type Group struct {
	Name       string
	Layers     uint32
	Blocks     uint32
	BlockBytes uint32
}

// Item is a named piece of state besides paged KV: a sliding-window ring, SSM
// or conv state, an n-gram history, sampler state, the first token.
type Item struct {
	Class string
	Bytes uint32
}

// Shape is what a handoff moves, known before the first byte. Source and
// target must have equal shapes (S7).
type Shape struct {
	Revision string // of the model's weights and tokenizer
	Layout   Digest // contracts/layout fingerprint
	Tokens   uint32 // prompt tokens whose state is moved
	Groups   []Group
	Items    []Item
}

// Pieces is the number of pieces: groups in order, each layer-major, then items.
func (s Shape) Pieces() uint32 {
	n := uint32(len(s.Items))
	for _, g := range s.Groups {
		n += g.Layers * g.Blocks
	}
	return n
}

// Blocks are the KV blocks that its pieces lie in, whatever their layers.
func (s Shape) Blocks() uint32 {
	var n uint32
	for _, g := range s.Groups {
		n += g.Blocks
	}
	return n
}

// Bytes is the size of all pieces together.
func (s Shape) Bytes() uint64 {
	var n uint64
	for _, g := range s.Groups {
		n += uint64(g.Layers) * uint64(g.Blocks) * uint64(g.BlockBytes)
	}
	for _, it := range s.Items {
		n += uint64(it.Bytes)
	}
	return n
}

// Place says what a piece is: a block of a group, or an item (Group < 0).
type Place struct {
	Group, Item  int
	Layer, Block uint32
	Bytes        uint32
}

// Place finds piece i; ok is false when i is out of range.
func (s Shape) Place(i uint32) (Place, bool) {
	for k, g := range s.Groups {
		if n := g.Layers * g.Blocks; i < n {
			return Place{Group: k, Item: -1, Layer: i / g.Blocks, Block: i % g.Blocks, Bytes: g.BlockBytes}, true
		} else {
			i -= n
		}
	}
	if i < uint32(len(s.Items)) {
		return Place{Group: -1, Item: int(i), Bytes: s.Items[i].Bytes}, true
	}
	return Place{}, false
}

// Piece is the inverse of Place for a block.
func (s Shape) Piece(group int, layer, block uint32) uint32 {
	var base uint32
	for _, g := range s.Groups[:group] {
		base += g.Layers * g.Blocks
	}
	return base + layer*s.Groups[group].Blocks + block
}

// ItemPiece is the inverse of Place for an item.
func (s Shape) ItemPiece(item int) uint32 {
	return s.Pieces() - uint32(len(s.Items)) + uint32(item)
}

// Validate refuses a shape over the limits before anything is allocated for it.
func (s Shape) Validate() error {
	switch {
	case len(s.Revision) == 0 || len(s.Revision) > MaxNameBytes:
		return Errorf(CodeInvalid, "revision has %d bytes, want 1..%d", len(s.Revision), MaxNameBytes)
	case s.Layout.IsZero():
		return Errorf(CodeInvalid, "layout fingerprint is zero")
	case s.Tokens == 0 || s.Tokens > MaxPromptTokens:
		return Errorf(CodeInvalid, "tokens %d out of 1..%d", s.Tokens, MaxPromptTokens)
	case len(s.Groups) > MaxGroups:
		return Errorf(CodeTooLarge, "%d groups, limit %d", len(s.Groups), MaxGroups)
	case len(s.Items) > MaxItems:
		return Errorf(CodeTooLarge, "%d items, limit %d", len(s.Items), MaxItems)
	case len(s.Groups)+len(s.Items) == 0:
		return Errorf(CodeInvalid, "shape has neither groups nor items")
	}
	var pieces uint64
	for i, g := range s.Groups {
		if len(g.Name) == 0 || len(g.Name) > MaxNameBytes || g.Layers == 0 || g.Blocks == 0 {
			return Errorf(CodeInvalid, "group %d has no name, layers or blocks", i)
		}
		if g.BlockBytes == 0 || g.BlockBytes > MaxPieceBytes {
			return Errorf(CodeInvalid, "group %d: block of %d bytes, want 1..%d", i, g.BlockBytes, MaxPieceBytes)
		}
		n := uint64(g.Layers) * uint64(g.Blocks)
		if n > MaxPieces {
			return Errorf(CodeTooLarge, "group %d has %d pieces, limit %d", i, n, MaxPieces)
		}
		pieces += n
	}
	for i, it := range s.Items {
		if len(it.Class) == 0 || len(it.Class) > MaxNameBytes || it.Bytes == 0 || it.Bytes > MaxPieceBytes {
			return Errorf(CodeInvalid, "item %d: class of %d bytes, %d bytes of state", i, len(it.Class), it.Bytes)
		}
	}
	if pieces+uint64(len(s.Items)) > MaxPieces {
		return Errorf(CodeTooLarge, "%d pieces, limit %d", pieces+uint64(len(s.Items)), MaxPieces)
	}
	return nil
}

// Match refuses two shapes that differ, naming the first difference (S7).
func (s Shape) Match(t Shape) error {
	switch {
	case s.Revision != t.Revision:
		return Errorf(CodeMismatch, "revision %q at P, %q at D", s.Revision, t.Revision)
	case s.Layout != t.Layout:
		return Errorf(CodeMismatch, "layout %s at P, %s at D", s.Layout, t.Layout)
	case s.Tokens != t.Tokens:
		return Errorf(CodeMismatch, "%d tokens at P, %d at D", s.Tokens, t.Tokens)
	case len(s.Groups) != len(t.Groups):
		return Errorf(CodeMismatch, "%d groups at P, %d at D", len(s.Groups), len(t.Groups))
	case len(s.Items) != len(t.Items):
		return Errorf(CodeMismatch, "%d state items at P, %d at D", len(s.Items), len(t.Items))
	}
	for i := range s.Groups {
		if s.Groups[i] != t.Groups[i] {
			return Errorf(CodeMismatch, "group %d is %+v at P, %+v at D", i, s.Groups[i], t.Groups[i])
		}
	}
	for i := range s.Items {
		if s.Items[i] != t.Items[i] {
			return Errorf(CodeMismatch, "item %d is %+v at P, %+v at D", i, s.Items[i], t.Items[i])
		}
	}
	return nil
}

// Manifest is what P sealed and D verifies: the shape and one CRC32C per piece,
// taken by P when it announced the piece (rule 28).
type Manifest struct {
	Attempt Attempt
	Shape   Shape
	Digests []uint32
}

// Validate checks the shape and that each piece has its digest.
func (m Manifest) Validate() error {
	if err := m.Attempt.Validate(); err != nil {
		return err
	}
	if err := m.Shape.Validate(); err != nil {
		return err
	}
	if uint32(len(m.Digests)) != m.Shape.Pieces() {
		return Errorf(CodeInvalid, "manifest has %d digests for %d pieces", len(m.Digests), m.Shape.Pieces())
	}
	return nil
}

// Digest is the SHA-256 of the manifest's canonical encoding; the question of
// the validated read carries it (rule 12).
func (m Manifest) Digest() Digest {
	h := sha256.New()
	var b []byte
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	str("surehand manifest v1")
	str(string(m.Attempt.Handoff))
	b = binary.AppendUvarint(b, uint64(m.Attempt.Epoch))
	b = binary.AppendUvarint(b, uint64(m.Attempt.Nonce))
	str(m.Shape.Revision)
	b = append(b, m.Shape.Layout[:]...)
	b = binary.AppendUvarint(b, uint64(m.Shape.Tokens))
	b = binary.AppendUvarint(b, uint64(len(m.Shape.Groups)))
	for _, g := range m.Shape.Groups {
		str(g.Name)
		b = binary.AppendUvarint(b, uint64(g.Layers))
		b = binary.AppendUvarint(b, uint64(g.Blocks))
		b = binary.AppendUvarint(b, uint64(g.BlockBytes))
	}
	b = binary.AppendUvarint(b, uint64(len(m.Shape.Items)))
	for _, it := range m.Shape.Items {
		str(it.Class)
		b = binary.AppendUvarint(b, uint64(it.Bytes))
	}
	for _, d := range m.Digests {
		b = binary.LittleEndian.AppendUint32(b, d)
	}
	h.Write(b)
	return Digest(h.Sum(nil))
}
