package paged_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// engine is an arena of the model's shape and a runner: what a P or a D has.
type engine struct {
	t     *testing.T
	arena *paged.Arena
	run   *model.Runner
}

func newEngine(t *testing.T, poison bool) *engine {
	t.Helper()
	m, err := model.Load()
	if err != nil {
		t.Fatal(err)
	}
	c := model.Shape()
	l := paged.Layout{BlockTokens: c.BlockTokens, Layers: c.PagedLayers, RunBytes: c.RunBytes,
		Blocks: 40, Slots: 4, RingBytes: c.RingBytes, ItemsBytes: c.ItemsBytes}
	a, err := paged.New(l, make([]byte, l.Bytes()), paged.Options{Poison: poison})
	if err != nil {
		t.Fatal(err)
	}
	return &engine{t, a, m.NewRunner()}
}

// open starts an empty sequence with room for tokens.
func (e *engine) open(shared []paged.Block, tokens int) (*paged.Sequence, *model.State) {
	e.t.Helper()
	own, err := e.arena.Allocate(e.arena.Layout().BlocksFor(tokens) - len(shared))
	if err != nil {
		e.t.Fatal(err)
	}
	q, err := e.arena.Open(shared, own)
	if err != nil {
		e.t.Fatal(err)
	}
	s := state(q, 0)
	model.ResetHistory(s.History)
	return q, s
}

func state(q *paged.Sequence, pos int) *model.State {
	return &model.State{KV: q, Ring: q.Ring(), History: model.HistoryItem.Of(q.Items()), Pos: pos}
}

func (e *engine) forward(s *model.State, tokens []int, chunk int) []float32 {
	e.t.Helper()
	var logits []float32
	for part := range slices.Chunk(tokens, chunk) {
		out, err := e.run.Forward(part, s, nil)
		if err != nil {
			e.t.Fatal(err)
		}
		logits = slices.Clone(out)
	}
	return logits
}

// answer decodes n tokens from logits and on.
func (e *engine) answer(s *model.State, sampler *model.Sampler, logits []float32, n int) (tokens []int) {
	e.t.Helper()
	for {
		token, err := sampler.Sample(logits)
		if err != nil {
			e.t.Fatal(err)
		}
		if tokens = append(tokens, token); len(tokens) == n {
			return tokens
		}
		logits = e.forward(s, []int{token}, 1)
	}
}

func prompt(t *testing.T, n int) []int {
	t.Helper()
	text := "Emma was very willing now to give him her hand, and a better opinion of his sense. "
	for len(text) < n {
		text += text
	}
	tokens, err := model.Encode(text[:n-2])
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func newSampler(t *testing.T, temperature float32) *model.Sampler {
	t.Helper()
	s, err := model.NewSampler(temperature, 0.95, 11)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// move copies blocks, ring and items, byte for byte, to other places of target.
func move(source, target *engine, q *paged.Sequence, pos int) (*paged.Sequence, *model.State) {
	target.t.Helper()
	if _, err := target.arena.Allocate(3); err != nil { // so that no block keeps its number
		target.t.Fatal(err)
	}
	moved, _ := target.open(nil, len(q.Blocks())*model.BlockTokens)
	for i, b := range q.Blocks() {
		copy(target.arena.Bytes(target.arena.Layout().Block(moved.Blocks()[i])),
			source.arena.Bytes(source.arena.Layout().Block(b)))
	}
	copy(moved.Ring(), q.Ring())
	copy(moved.Items(), q.Items())
	return moved, state(moved, pos)
}

func TestDecodeAfterAHandoffEqualsDecodeInPlace(t *testing.T) {
	const answer = 40
	for _, n := range []int{15, 16, 17, 127, 128, 129, 200} {
		for _, temperature := range []float32{0, 0.9} {
			t.Run(fmt.Sprintf("prompt %d temperature %v", n, temperature), func(t *testing.T) {
				p, d, tokens := newEngine(t, true), newEngine(t, true), prompt(t, n)
				_, s := p.open(nil, n+answer)
				want := p.answer(s, newSampler(t, temperature), p.forward(s, tokens, 64), answer)

				q, s := p.open(nil, n+answer)
				sampler := newSampler(t, temperature)
				first, err := sampler.Sample(p.forward(s, tokens, 16))
				if err != nil {
					t.Fatal(err)
				}
				model.PutFirstToken(model.FirstTokenItem.Of(q.Items()), first)
				if err := sampler.Save(model.SamplerItem.Of(q.Items())); err != nil {
					t.Fatal(err)
				}
				moved, s := move(p, d, q, s.Pos)
				if err := q.Close(); err != nil { // P poisons its memory: D must not miss it
					t.Fatal(err)
				}
				if first, err = model.FirstToken(model.FirstTokenItem.Of(moved.Items())); err != nil {
					t.Fatal(err)
				}
				if sampler, err = model.RestoreSampler(model.SamplerItem.Of(moved.Items())); err != nil {
					t.Fatal(err)
				}
				got := append([]int{first}, d.answer(s, sampler, d.forward(s, []int{first}, 1), answer-1)...)
				if !slices.Equal(got, want) {
					t.Errorf("after the handoff %v\nin place %v", got, want)
				}
			})
		}
	}
}

// Every item matters: one flipped bit in each, and the next logits are others.
func TestAFlippedBitOfAnyItemChangesTheLogits(t *testing.T) {
	e, tokens := newEngine(t, true), prompt(t, 150)
	q, s := e.open(nil, 160)
	e.forward(s, tokens, 64)
	want := func(flip func(q *paged.Sequence)) []float32 {
		moved, s := move(e, newEngine(t, true), q, s.Pos)
		flip(moved)
		return e.forward(s, []int{'e'}, 1)
	}
	clean := want(func(*paged.Sequence) {})
	if !slices.Equal(want(func(*paged.Sequence) {}), clean) {
		t.Fatal("two copies of the same state differ")
	}
	flips := map[string]func(*paged.Sequence){
		"ring K": func(q *paged.Sequence) { q.Ring()[2] ^= 0x40 },
		"ring V": func(q *paged.Sequence) { q.Ring()[model.Shape().RunBytes/2+2] ^= 0x40 },
		"wrong position": func(q *paged.Sequence) { // the ring of one position later
			copy(q.Ring(), slices.Clone(q.Ring()[128:]))
		},
	}
	for i := range 3 {
		flips[fmt.Sprintf("history %d", i)] = func(q *paged.Sequence) { q.Items()[2*i] ^= 1 }
	}
	for layer := range model.Shape().PagedLayers {
		for _, at := range []int{2, model.Shape().RunBytes/2 + 2} {
			flips[fmt.Sprintf("layer %d byte %d", layer, at)] = func(q *paged.Sequence) {
				run, err := q.Run(layer, 9)
				if err != nil {
					t.Fatal(err)
				}
				run[at] ^= 0x40
			}
		}
	}
	for name, flip := range flips {
		if slices.Equal(want(flip), clean) {
			t.Errorf("%s: the logits are the same", name)
		}
	}
}

func TestDecodeOverFreedMemoryGivesNoToken(t *testing.T) {
	e := newEngine(t, true)
	q, s := e.open(nil, 40)
	e.forward(s, prompt(t, 32), 16)
	table := slices.Clone(q.Blocks())
	if err := e.arena.Release(table[:1]); err != nil { // freed too early
		t.Fatal(err)
	}
	if _, err := e.run.Forward([]int{'a'}, s, nil); !errors.Is(err, model.ErrNotFinite) {
		t.Errorf("stale block: %v", err)
	}
	q, s = e.open(nil, 40)
	e.forward(s, prompt(t, 32), 16)
	if err := e.arena.ReleaseSlot(q.Slot()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.run.Forward([]int{'a'}, s, nil); !errors.Is(err, model.ErrState) {
		t.Errorf("stale slot: %v", err)
	}
}

func TestAPrefixHitWithReplayEqualsAFullPrefill(t *testing.T) {
	e, tokens := newEngine(t, true), prompt(t, 200)
	first, s := e.open(nil, 210)
	want := e.forward(s, tokens, 64)
	if err := e.arena.Insert("tenant", tokens, first.Blocks()); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	hit := e.arena.Lookup("tenant", tokens)
	if len(hit) != 199/16 {
		t.Fatalf("hit of %d blocks", len(hit))
	}
	q, s := e.open(hit, 210)
	prefix := len(hit) * model.BlockTokens
	if err := e.run.Replay(tokens[:prefix], s); err != nil {
		t.Fatal(err)
	}
	if got := e.forward(s, tokens[prefix:], 64); !slices.Equal(got, want) {
		t.Error("logits after the hit differ")
	}
	s.Pos = 0 // a fault: writing over the shared prefix
	if _, err := e.run.Forward(tokens[:1], s, nil); !errors.Is(err, paged.ErrShared) {
		t.Errorf("write to a shared block: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if c := e.arena.Count(); c.Held != 0 || c.FreeSlots != c.Slots || c.Free+c.Cached != c.Blocks {
		t.Errorf("at rest: %+v", c)
	}
}

func TestAClosedSequenceFindsNothing(t *testing.T) {
	e := newEngine(t, false)
	q, s := e.open(nil, 16)
	if err := errors.Join(q.Close(), q.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Run(0, 0); !errors.Is(err, paged.ErrNotHeld) {
		t.Errorf("run: %v", err)
	}
	if _, err := e.run.Forward([]int{'a'}, s, nil); !errors.Is(err, paged.ErrNotHeld) {
		t.Errorf("forward: %v", err)
	}
	if q.Ring() != nil || q.Items() != nil || !errors.Is(q.Grow(99), paged.ErrNotHeld) {
		t.Error("a closed sequence still has memory")
	}
}
