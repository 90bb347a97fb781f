package llamacpp

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// The items of a slot. The tail is the rest of the state that its blocks do not
// hold; its size follows from the weights.
var (
	headItem    = model.Item{Name: "state_head", Offset: 0, Bytes: headBytes}
	samplerItem = model.Item{Name: "sampler", Offset: 48, Bytes: model.SamplerBytes}
	firstItem   = model.Item{Name: "first_token", Offset: 72, Bytes: 8}
	tailOffset  = 80
)

// headBytes: size of the state, tokens in it, SHA-256 of it and what goes with it.
const headBytes = 8 + 8 + sha256.Size

func items(base int) []model.Item {
	return []model.Item{headItem, samplerItem, firstItem, tail(base)}
}

func tail(base int) model.Item {
	return model.Item{Name: "state_tail", Offset: tailOffset, Bytes: max(8, (base+7)/8*8)}
}

func itemsBytes(base int) int { return tailOffset + tail(base).Bytes }

// parts are the ranges of q that hold the state of n tokens, in order.
func (w *Work) parts(q *paged.Sequence, tokens int, write bool) ([][]byte, error) {
	n := (tokens + blockTokens - 1) / blockTokens
	out := make([][]byte, 0, n+1)
	run := q.Run
	if write {
		run = q.WritableRun
	}
	for i := range n {
		b, err := run(0, i)
		if err != nil {
			return nil, handoff.Errorf(handoff.CodeInternal, "%s", err)
		}
		out = append(out, b)
	}
	return append(out, tail(w.base).Of(q.Items())), nil
}

// size of the state of so many tokens.
func (w *Work) size(tokens int) int { return w.base + tokens*w.token }

// room is a private copy's place.
func (w *Work) room(bytes int) []byte {
	if cap(w.scratch) < bytes {
		w.scratch = make([]byte, bytes)
	}
	return w.scratch[:bytes]
}

// save exports the state of q's sequence into q.
func (w *Work) save(q *paged.Sequence, tokens int) error {
	state := w.room(w.size(tokens))
	if got := w.context.StateBytes(int(q.Slot())); got != len(state) {
		return handoff.Errorf(handoff.CodeEngine, "a state of %d tokens has %d bytes, want %d", tokens, got, len(state))
	}
	n, err := w.context.Export(int(q.Slot()), state)
	if err != nil {
		return err
	}
	if n != len(state) {
		return handoff.Errorf(handoff.CodeEngine, "libllama exports %d bytes of %d", n, len(state))
	}
	parts, err := w.parts(q, tokens, true)
	if err != nil {
		return err
	}
	head := headItem.Of(q.Items())
	binary.LittleEndian.PutUint64(head, uint64(len(state)))
	binary.LittleEndian.PutUint64(head[8:], uint64(tokens))
	sum := digest(q, state)
	copy(head[16:], sum[:])
	for _, p := range parts {
		state = state[copy(p, state):]
	}
	if len(state) > 0 {
		return handoff.Errorf(handoff.CodeInternal, "%d bytes of a state have no place", len(state))
	}
	return nil
}

// digest is of everything that a decode begins from: sizes, sampler, first token
// and state.
func digest(q *paged.Sequence, state []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range [][]byte{headItem.Of(q.Items())[:16], samplerItem.Of(q.Items()), firstItem.Of(q.Items()), state} {
		h.Write(part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// load imports the state that landed in q, of just so many tokens, once its
// digest is right. Sizes come from us, not from what landed.
func (w *Work) load(q *paged.Sequence, tokens int) error {
	head := headItem.Of(q.Items())
	state := w.room(w.size(tokens))
	if bytes, its := binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint64(head[8:]); bytes != uint64(len(state)) || its != uint64(tokens) {
		return handoff.Errorf(handoff.CodeIntegrity, "a state of %d bytes and %d tokens, want %d and %d", bytes, its, len(state), tokens)
	}
	parts, err := w.parts(q, tokens, false)
	if err != nil {
		return err
	}
	rest := state
	for _, p := range parts {
		rest = rest[copy(rest, p):]
	}
	if sum := digest(q, state); string(sum[:]) != string(head[16:]) {
		return handoff.Errorf(handoff.CodeIntegrity, "the state is not the one that P sealed")
	}
	return w.context.Import(int(q.Slot()), state)
}
