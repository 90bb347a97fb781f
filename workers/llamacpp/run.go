package llamacpp

import (
	"encoding/binary"
	"errors"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// Prefill begins to compute tokens into the sequence of q's slot.
func (w *Work) Prefill(q *paged.Sequence, _ handoff.Attempt, tokens []int, _ int, s compute.Sampling) (compute.Prefill, error) {
	topP := float32(s.TopP)
	if s.TopP == 0 {
		topP = 1
	}
	sampler, err := model.NewSampler(float32(s.Temperature), topP, s.Seed)
	if err != nil {
		return nil, typed(err)
	}
	return &prefill{w: w, q: q, tokens: tokens, sampler: sampler}, nil
}

type prefill struct {
	w       *Work
	q       *paged.Sequence
	tokens  []int
	pos     int
	sampler *model.Sampler
	first   int
}

func (p *prefill) Chunk(n int, _ func(int)) error {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.pos == 0 {
		if err := w.context.Clear(int(p.q.Slot())); err != nil {
			return err
		}
	}
	last := p.pos+n == len(p.tokens)
	logits, err := w.context.Decode(int(p.q.Slot()), p.pos, p.tokens[p.pos:p.pos+n], last)
	if err != nil {
		return err
	}
	p.pos += n
	if last {
		p.first, err = p.sampler.Draw(logits)
	}
	return typed(err)
}

// Finish writes the state and everything that goes with it.
func (p *prefill) Finish() error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	binary.LittleEndian.PutUint64(firstItem.Of(p.q.Items()), uint64(p.first))
	if err := p.sampler.Save(samplerItem.Of(p.q.Items())); err != nil {
		return typed(err)
	}
	return p.w.save(p.q, p.pos)
}

// Decode begins from the state that landed in q.
func (w *Work) Decode(q *paged.Sequence, _ handoff.Attempt, tokens int) compute.Decode {
	return &decode{w: w, q: q, pos: tokens}
}

type decode struct {
	w       *Work
	q       *paged.Sequence
	pos     int
	sampler *model.Sampler // nil before the first step
	last    int
}

func (d *decode) Step() ([]byte, bool, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	token, err := d.next()
	if err != nil {
		return nil, false, typed(err)
	}
	d.last = token
	if d.w.model.IsEnd(token) {
		return nil, true, nil
	}
	text, err := d.w.model.Piece(token)
	return text, false, err
}

// next imports the state and reads the token that P drew, then draws those that
// follow it.
func (d *decode) next() (int, error) {
	if d.sampler == nil {
		if err := d.w.load(d.q, d.pos); err != nil {
			return 0, err
		}
		first := binary.LittleEndian.Uint64(firstItem.Of(d.q.Items()))
		if first >= uint64(d.w.model.Vocabulary()) {
			return 0, handoff.Errorf(handoff.CodeIntegrity, "the first token is none of the vocabulary")
		}
		sampler, err := model.RestoreSampler(samplerItem.Of(d.q.Items()))
		if err != nil {
			return 0, err
		}
		d.sampler = sampler
		return int(first), nil
	}
	logits, err := d.w.context.Decode(int(d.q.Slot()), d.pos, []int{d.last}, true)
	if err != nil {
		return 0, err
	}
	d.pos++
	return d.sampler.Draw(logits)
}

// typed says what a caller may do about an error of model.
func typed(err error) error {
	var known *handoff.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, model.ErrInput):
		return handoff.Errorf(handoff.CodeInvalid, "%s", err)
	case errors.Is(err, model.ErrState), errors.Is(err, model.ErrNotFinite):
		return handoff.Errorf(handoff.CodeIntegrity, "%s", err)
	}
	return handoff.Errorf(handoff.CodeInternal, "%s", err)
}
