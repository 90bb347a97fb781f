package client

import "github.com/surehand/surehand/contracts/handoff"

// blobBlock is what an opaque state is cut into.
const blobBlock = 1 << 20

// Blob is an engine's state of one sequence that nobody else can read: one run of
// bytes, of a length that both sides know. It is moved, sealed and verified as pieces
// are; what it means is its engine's business, and so is a length of its own inside.
type Blob struct {
	Shape   handoff.Shape
	Offsets []uint64
}

// NewBlob describes bytes of opaque state at an offset of the segment.
func NewBlob(revision string, layout handoff.Digest, tokens uint32, at, bytes uint64) (Blob, error) {
	b := Blob{Shape: handoff.Shape{Revision: revision, Layout: layout, Tokens: tokens}}
	whole, rest := bytes/blobBlock, bytes%blobBlock
	if whole >= handoff.MaxPieces || at > ^uint64(0)-bytes {
		return b, handoff.Errorf(handoff.CodeTooLarge, "an opaque state of %d bytes at %d", bytes, at)
	}
	if whole > 0 {
		b.Shape.Groups = []handoff.Group{{Name: "opaque", Layers: 1, Blocks: uint32(whole), BlockBytes: blobBlock}}
	}
	if rest > 0 {
		b.Shape.Items = []handoff.Item{{Class: "opaque-rest", Bytes: uint32(rest)}}
	}
	for i := range uint64(b.Shape.Pieces()) {
		b.Offsets = append(b.Offsets, at+i*blobBlock)
	}
	return b, b.Shape.Validate()
}
