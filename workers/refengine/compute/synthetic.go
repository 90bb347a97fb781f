package compute

import (
	"strconv"
	"sync/atomic"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// SyntheticOptions sizes the stand-in state.
type SyntheticOptions struct {
	Layers      int // 0: 2
	TokenBytes  int // of one token in one layer, a multiple of 8; 0: 16
	Context     int // 0: 131072
	BlockTokens int // of one KV block, a divisor of the ring; 0: 16
	Revision    string
}

// Limits of a synthetic state.
const (
	maxSyntheticLayers     = 256
	maxSyntheticTokenBytes = 64 << 10
	syntheticBlockTokens   = 16
	syntheticChunk         = 2048
	syntheticItem          = 64
	recheckBytes           = 8 << 10 // that each step checks again
)

// Synthetic computes nothing: each state byte is a function of (handoff, epoch,
// nonce, layer, position), and a decode checks what landed against it before
// each token. A byte of another request, another epoch or a freed block is
// CodeIntegrity, never a token (S1, S6).
type Synthetic struct {
	o      SyntheticOptions
	broken atomic.Uint64
}

// NewSynthetic refuses sizes out of bounds.
func NewSynthetic(o SyntheticOptions) (*Synthetic, error) {
	for _, d := range []struct {
		field     *int
		otherwise int
		limit     int
	}{{&o.Layers, 2, maxSyntheticLayers}, {&o.TokenBytes, 16, maxSyntheticTokenBytes}, {&o.Context, 128 << 10, handoff.MaxPromptTokens},
		{&o.BlockTokens, syntheticBlockTokens, syntheticItem}} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
		if *d.field < 1 || *d.field > d.limit {
			return nil, handoff.Errorf(handoff.CodeInvalid, "a synthetic size is %d, want 1..%d", *d.field, d.limit)
		}
	}
	if o.TokenBytes%8 != 0 {
		return nil, handoff.Errorf(handoff.CodeInvalid, "synthetic token of %d bytes, want a multiple of 8", o.TokenBytes)
	}
	if syntheticItem%o.BlockTokens != 0 {
		return nil, handoff.Errorf(handoff.CodeInvalid, "synthetic block of %d tokens, want a divisor of %d", o.BlockTokens, syntheticItem)
	}
	if o.Revision == "" {
		o.Revision = "synthetic-1"
	}
	return &Synthetic{o: o}, nil
}

// Broken counts the decodes that met a wrong byte.
func (s *Synthetic) Broken() uint64 { return s.broken.Load() }

func (s *Synthetic) Revision() string { return s.o.Revision }
func (s *Synthetic) Context() int     { return s.o.Context }
func (s *Synthetic) MaxChunk() int    { return syntheticChunk }
func (s *Synthetic) Shares() bool     { return false } // the KV of two requests never equals

// Forget has nothing to drop: all of the state is the sequence's.
func (s *Synthetic) Forget(*paged.Sequence) error { return nil }

func (s *Synthetic) Layout(blocks, slots int) paged.Layout {
	return paged.Layout{BlockTokens: s.o.BlockTokens, Layers: s.o.Layers, RunBytes: s.o.BlockTokens * s.o.TokenBytes,
		Blocks: blocks, Slots: slots, RingBytes: syntheticItem, ItemsBytes: syntheticItem}
}

// Caches are bytes without structure: one vector a token.
func (s *Synthetic) Caches() []layout.Cache {
	kv := layout.Cache{Name: "paged", Layers: uint32(s.o.Layers), KVHeads: 1, HeadDim: uint32(s.o.TokenBytes), DType: "int8", Packing: layout.Latent, Order: layout.NHD}
	ring := kv
	ring.Name, ring.Layers, ring.HeadDim, ring.Window = "ring", 1, 1, syntheticItem
	return []layout.Cache{kv, ring}
}

// Items has the same classes as the transformer's, so that fault tools need to
// know one set of names.
func (s *Synthetic) Items() []model.Item {
	return []model.Item{{Name: model.HistoryItem.Name, Offset: 0, Bytes: 8}, {Name: model.SamplerItem.Name, Offset: 8, Bytes: 24},
		{Name: model.FirstTokenItem.Name, Offset: 32, Bytes: 8}}
}

// Encode counts as the transformer does: one token a byte, and the two that frame them.
func (s *Synthetic) Encode(prompt []byte) ([]int, error) {
	if len(prompt)+2 >= s.o.Context {
		return nil, handoff.Errorf(handoff.CodeInvalid, "prompt of %d bytes, context of %d tokens", len(prompt), s.o.Context)
	}
	return make([]int, len(prompt)+2), nil
}

// Continue counts: what the tokens were does not matter here.
func (s *Synthetic) Continue(prompt []int, _ []byte, drawn int) ([]int, error) {
	if len(prompt)+drawn >= s.o.Context {
		return nil, handoff.Errorf(handoff.CodeInvalid, "prompt of %d tokens and %d of answer, context of %d", len(prompt), drawn, s.o.Context)
	}
	return make([]int, len(prompt)+drawn), nil
}

func (s *Synthetic) Prefill(q *paged.Sequence, a handoff.Attempt, tokens []int, _ int, _ Sampling) (Prefill, error) {
	return &syntheticPrefill{syntheticState{s, q, seedOf(a)}, 0, len(tokens)}, nil
}

func (s *Synthetic) Decode(q *paged.Sequence, a handoff.Attempt, tokens int) Decode {
	return s.DecodeOn(q, a, tokens, 0)
}

// DecodeOn implements Resumes.
func (s *Synthetic) DecodeOn(q *paged.Sequence, a handoff.Attempt, tokens, drawn int) Decode {
	return &syntheticDecode{syntheticState: syntheticState{s, q, seedOf(a)}, prompt: tokens, pos: tokens, drawn: drawn}
}

type syntheticPrefill struct {
	syntheticState
	pos, end int
}

func (p *syntheticPrefill) Chunk(n int, onLayer func(int)) error {
	for layer := range p.s.o.Layers {
		if err := p.fill(layer, p.pos, p.pos+n); err != nil {
			return err
		}
		if onLayer != nil {
			onLayer(layer)
		}
	}
	p.pos += n
	return nil
}

func (p *syntheticPrefill) Finish() error {
	p.each(fill)
	return nil
}

type syntheticDecode struct {
	syntheticState
	prompt, pos int
	step        int
	drawn       int // tokens of the answer before the first step
	checked     int // position up to which the present round has checked again
}

func (d *syntheticDecode) Step() ([]byte, bool, error) {
	if err := d.verify(); err != nil {
		d.s.broken.Add(1)
		return nil, false, err
	}
	if d.step > 0 { // as a model does: the KV of a token is written when it is fed
		for layer := range d.s.o.Layers {
			if err := d.fill(layer, d.pos, d.pos+1); err != nil {
				return nil, false, err
			}
		}
		d.pos++
	}
	text := strconv.AppendInt([]byte(" w"), int64(d.drawn+d.step), 10)
	d.step++
	return text, false, nil
}

// verify checks everything before the first token, and a bounded part of it,
// round after round, before each other.
func (d *syntheticDecode) verify() error {
	if !d.each(equal) {
		return handoff.Errorf(handoff.CodeIntegrity, "a state item is not that of this attempt, at token %d", d.step)
	}
	until := d.pos
	if d.step > 0 {
		until = min(d.pos, d.checked+max(1, recheckBytes/(d.s.o.Layers*d.s.o.TokenBytes)))
	}
	for layer := range d.s.o.Layers {
		at, err := d.check(layer, d.checked, until)
		if err != nil {
			return err
		}
		if at >= 0 {
			return handoff.Errorf(handoff.CodeIntegrity, "KV of layer %d at position %d is not that of this attempt, at token %d", layer, at, d.step)
		}
	}
	if d.checked = until; until == d.pos {
		d.checked = 0
	}
	return nil
}
