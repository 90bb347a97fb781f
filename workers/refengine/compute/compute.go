// Package compute is what a reference engine runs on the state in its arena: a
// real transformer (Transformer), or stand-in work whose state can be checked
// byte by byte (Synthetic).
//
// # Lifetime
//
// A run reads and writes the blocks, ring and items of its sequence and nothing
// else; ours keep no copy of them, so a byte that changes underneath is met by
// the next step. Whoever owns the sequence ends the run before it closes it.
// A compute with memory of its own imports the state before its first token.
//
// # Threads
//
// The runs of one Compute share scratch memory: Chunk, Finish and Step of all
// of them are called from one goroutine. The rest may be called from any.
package compute

import (
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// Compute is one kind of work.
type Compute interface {
	// Revision names weights and tokenizer: engines that differ never hand over.
	Revision() string
	// Layout is the arena for so many blocks and slots.
	Layout(blocks, slots int) paged.Layout
	// Caches describe the paged KV and the ring of the arena, in that order.
	Caches() []layout.Cache
	// Items are the small state items of a slot, in manifest order.
	Items() []model.Item
	// Context bounds prompt and answer together, MaxChunk one call of Chunk.
	Context() int
	MaxChunk() int
	// Shares says whether two requests with equal prompts have equal KV.
	Shares() bool
	// Encode makes the tokens of a prompt.
	Encode(prompt []byte) ([]int, error)
	// Prefill begins to compute tokens into q, whose first cached tokens' KV is
	// there. Decode begins from the state that landed in q.
	Prefill(q *paged.Sequence, a handoff.Attempt, tokens []int, cached int, s Sampling) (Prefill, error)
	Decode(q *paged.Sequence, a handoff.Attempt, tokens int) Decode
	// Forget drops what the compute holds for q outside its memory. The owner
	// calls it once, after the runs of q and before it closes q.
	Forget(q *paged.Sequence) error
}

// Resumes is a compute whose state can be rebuilt from the tokens of an answer:
// the draws of a seed go on behind them as one run would.
type Resumes interface {
	// Continue adds the tokens of an answer that was drawn so far to its prompt's.
	Continue(prompt []int, answered []byte, drawn int) ([]int, error)
	// DecodeOn is Decode behind so many tokens of the answer, which are among tokens.
	DecodeOn(q *paged.Sequence, a handoff.Attempt, tokens, drawn int) Decode
}

// Chats is a compute whose tokens nobody else can count, and which knows how a
// chat becomes a prompt. Both may be called from any goroutine.
type Chats interface {
	Render(messages []Message) ([]byte, error)
}

// Message is one turn of a chat.
type Message struct{ Role, Content string }

// Sampling is how tokens are drawn; it travels to D as an item.
type Sampling struct {
	Temperature, TopP float64
	Seed              uint64
	Drawn             int // tokens drawn before, by another attempt
}

// Prefill computes one prompt.
type Prefill interface {
	// Chunk computes the next n tokens. onLayer is told each paged layer once
	// their KV stands written in it, for good. A compute whose state is written
	// all at once, by Finish, never calls it.
	Chunk(n int, onLayer func(layer int)) error
	// Finish draws the first token and writes every item: the state is whole.
	Finish() error
}

// Decode produces one answer.
type Decode interface {
	// Step gives the next token's bytes; end says that the answer ended before
	// it. An error is for good and nothing may be shown of that step.
	Step() (text []byte, end bool, err error)
}

// State describes what a handoff of this compute moves, in the words by which
// two engines know that they can hand over.
func State(c Compute) layout.Layout {
	l := layout.Layout{BlockTokens: uint32(c.Layout(1, 1).BlockTokens), Parallel: 1, Caches: c.Caches()}
	for _, i := range c.Items() {
		l.Items = append(l.Items, layout.Item{Class: i.Name, Bytes: uint32(i.Bytes)})
	}
	return l
}

// Described is State and what it does not say of the model: with one rank every
// head and item is that rank's.
func Described(c Compute) layout.Described {
	d := layout.Described{Layout: State(c)}
	for _, k := range d.Layout.Caches {
		d.Model.Heads = append(d.Model.Heads, k.KVHeads)
	}
	return d
}
