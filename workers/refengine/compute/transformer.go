package compute

import (
	"errors"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// Transformer runs the embedded model.
type Transformer struct {
	model  *model.Model
	runner *model.Runner
}

// NewTransformer loads the weights.
func NewTransformer() (*Transformer, error) {
	m, err := model.Load()
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeEngine, "%s", err)
	}
	return &Transformer{m, m.NewRunner()}, nil
}

func (t *Transformer) Revision() string { return t.model.Revision() }
func (t *Transformer) Context() int     { return model.MaxPositions }
func (t *Transformer) MaxChunk() int    { return model.MaxChunk }
func (t *Transformer) Shares() bool     { return true }

// Forget has nothing to drop: all of the state is the sequence's.
func (t *Transformer) Forget(*paged.Sequence) error { return nil }

func (t *Transformer) Layout(blocks, slots int) paged.Layout {
	c := model.Shape()
	return paged.Layout{BlockTokens: c.BlockTokens, Layers: c.PagedLayers, RunBytes: c.RunBytes,
		Blocks: blocks, Slots: slots, RingBytes: c.RingBytes, ItemsBytes: c.ItemsBytes}
}

// Caches: float32, K of a block's tokens, then V.
func (t *Transformer) Caches() []layout.Cache {
	c := model.Shape()
	kv := layout.Cache{Name: "paged", Layers: uint32(c.PagedLayers), KVHeads: uint32(c.KVHeads), HeadDim: uint32(c.HeadDim),
		DType: "float32", Packing: layout.PackedKV, Order: layout.NHD}
	ring := kv
	ring.Name, ring.Layers, ring.Window = "ring", uint32(c.Layers-c.PagedLayers), uint32(c.Window)
	return []layout.Cache{kv, ring}
}

func (t *Transformer) Items() []model.Item {
	return []model.Item{model.HistoryItem, model.SamplerItem, model.FirstTokenItem}
}

func (t *Transformer) Encode(prompt []byte) ([]int, error) {
	tokens, err := model.Encode(string(prompt))
	return tokens, typed(err)
}

// Continue is exact: each byte of an answer is the token that was drawn.
func (t *Transformer) Continue(prompt []int, answered []byte, drawn int) ([]int, error) {
	if len(answered) != drawn || len(prompt)+drawn >= model.MaxPositions {
		return nil, handoff.Errorf(handoff.CodeInvalid, "prompt of %d tokens, %d of answer in %d bytes, context of %d", len(prompt), drawn, len(answered), model.MaxPositions)
	}
	for _, b := range answered {
		prompt = append(prompt, int(b))
	}
	return prompt, nil
}

func (t *Transformer) Prefill(q *paged.Sequence, _ handoff.Attempt, tokens []int, cached int, s Sampling) (Prefill, error) {
	topP := float32(s.TopP)
	if s.TopP == 0 {
		topP = 1
	}
	sampler, err := model.NewSampler(float32(s.Temperature), topP, s.Seed)
	if err != nil {
		return nil, typed(err)
	}
	sampler.Skip(s.Drawn)
	return &transformerPrefill{t: t, q: q, tokens: tokens, cached: cached, sampler: sampler}, nil
}

type transformerPrefill struct {
	t       *Transformer
	q       *paged.Sequence
	tokens  []int
	cached  int
	sampler *model.Sampler
	state   *model.State // nil before the first chunk
	first   int
}

func (p *transformerPrefill) Chunk(n int, onLayer func(int)) error {
	if p.state == nil {
		p.state = state(p.q, 0)
		model.ResetHistory(p.state.History)
		if p.cached > 0 {
			if err := p.t.runner.Replay(p.tokens[:p.cached], p.state); err != nil {
				return typed(err)
			}
		}
	}
	logits, err := p.t.runner.Forward(p.tokens[p.state.Pos:p.state.Pos+n], p.state, onLayer)
	if err != nil || p.state.Pos < len(p.tokens) {
		return typed(err)
	}
	p.first, err = p.sampler.Sample(logits)
	return typed(err)
}

func (p *transformerPrefill) Finish() error {
	model.PutFirstToken(model.FirstTokenItem.Of(p.q.Items()), p.first)
	return typed(p.sampler.Save(model.SamplerItem.Of(p.q.Items())))
}

func (t *Transformer) Decode(q *paged.Sequence, _ handoff.Attempt, tokens int) Decode {
	return &transformerDecode{t: t, q: q, pos: tokens}
}

// DecodeOn implements Resumes: sampler and history that landed know it all.
func (t *Transformer) DecodeOn(q *paged.Sequence, a handoff.Attempt, tokens, _ int) Decode {
	return t.Decode(q, a, tokens)
}

type transformerDecode struct {
	t       *Transformer
	q       *paged.Sequence
	pos     int
	sampler *model.Sampler // nil before the first step
	state   *model.State
	last    int
}

func (d *transformerDecode) Step() ([]byte, bool, error) {
	token, err := d.next()
	if err != nil {
		return nil, false, typed(err)
	}
	d.last = token
	return model.Text(token), token == model.EOS, nil
}

// next reads the token that P drew, then draws those that follow it.
func (d *transformerDecode) next() (int, error) {
	if d.state == nil {
		sampler, err := model.RestoreSampler(model.SamplerItem.Of(d.q.Items()))
		if err != nil {
			return 0, err
		}
		d.sampler, d.state = sampler, state(d.q, d.pos)
		return model.FirstToken(model.FirstTokenItem.Of(d.q.Items()))
	}
	logits, err := d.t.runner.Forward([]int{d.last}, d.state, nil)
	if err != nil {
		return 0, err
	}
	return d.sampler.Sample(logits)
}

func state(q *paged.Sequence, pos int) *model.State {
	return &model.State{KV: q, Ring: q.Ring(), History: model.HistoryItem.Of(q.Items()), Pos: pos}
}

// typed says what a caller may do about an error of model or paged.
func typed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, model.ErrInput):
		return handoff.Errorf(handoff.CodeInvalid, "%s", err)
	case errors.Is(err, model.ErrState), errors.Is(err, model.ErrNotFinite):
		return handoff.Errorf(handoff.CodeIntegrity, "%s", err)
	case errors.Is(err, paged.ErrFull):
		return handoff.Errorf(handoff.CodeCapacity, "%s", err)
	}
	return handoff.Errorf(handoff.CodeInternal, "%s", err)
}
