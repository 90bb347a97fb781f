package refengine

import (
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// group is the one cache group of paged KV; its blocks are those of the prompt.
const group = 0

// form is what an engine's handoffs have in common.
type form struct {
	revision  string
	state     layout.Layout  // what is moved
	digest    handoff.Digest // of state
	layout    paged.Layout   // where it lies here
	items     []model.Item
	described layout.Described // state, enough for another layout to be made of it
	encoded   []byte           // described, as the registry keeps it
}

func newForm(work compute.Compute, blocks, slots int) (form, error) {
	described := compute.Described(work)
	encoded, err := rpc.EncodeLayout(described)
	state := described.Layout
	return form{work.Revision(), state, state.Fingerprint(), work.Layout(blocks, slots), work.Items(), described, encoded}, err
}

// shape is what the handoff of so many prompt tokens moves.
func (f form) shape(tokens int) handoff.Shape { return f.state.Shape(f.revision, uint32(tokens)) }

// ranges is where each piece of a shape lies for a sequence, in piece order.
func (f form) ranges(s handoff.Shape, q *paged.Sequence) []paged.Range {
	out := make([]paged.Range, 0, s.Pieces())
	for layer := range f.layout.Layers {
		for _, b := range q.Blocks()[:s.Groups[group].Blocks] {
			out = append(out, f.layout.Run(b, layer))
		}
	}
	if f.layout.RingBytes > 0 { // it comes first of the items
		out = append(out, f.layout.Ring(q.Slot()))
	}
	base := f.layout.Items(q.Slot()).Offset
	for _, i := range f.items {
		out = append(out, paged.Range{Offset: base + i.Offset, Bytes: i.Bytes})
	}
	return out
}

func offsets(ranges []paged.Range) []uint64 {
	out := make([]uint64, len(ranges))
	for i, r := range ranges {
		out[i] = uint64(r.Offset)
	}
	return out
}

// physical names the blocks that a grant pins.
func physical(blocks []paged.Block) []uint32 {
	out := make([]uint32, len(blocks))
	for i, b := range blocks {
		out[i] = uint32(b)
	}
	return out
}
