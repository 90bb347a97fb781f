// Package compute is what a reference engine runs on the state in its arena: a
// real transformer (Transformer), or stand-in work whose state can be checked
// byte by byte (Synthetic).
//
// # Lifetime
//
// A run reads and writes the blocks, ring and items of its sequence and nothing
// else; it keeps no copy of them, so a byte that changes underneath is met by
// the next step. Whoever owns the sequence ends the run before it closes it.
//
// # Threads
//
// The runs of one Compute share scratch memory: Chunk, Finish and Step of all
// of them are called from one goroutine. The rest may be called from any.
package compute

import (
	"crypto/sha256"
	"fmt"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// Compute is one kind of work.
type Compute interface {
	// Revision names weights and tokenizer: engines that differ never hand over.
	Revision() string
	// Layout is the arena for so many blocks and slots.
	Layout(blocks, slots int) paged.Layout
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
}

// Sampling is how tokens are drawn; it travels to D as an item.
type Sampling struct {
	Temperature, TopP float64
	Seed              uint64
}

// Prefill computes one prompt.
type Prefill interface {
	// Chunk computes the next n tokens. onLayer is told each paged layer once
	// their KV stands written in it, for good.
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

// Fingerprint is the layout digest by which two engines know that they can hand
// over: everything that decides where a state byte lies, but not how much room
// an engine has.
func Fingerprint(c Compute) handoff.Digest {
	l := c.Layout(1, 1)
	h := sha256.New()
	fmt.Fprintf(h, "surehand reference layout v1\x00%s\x00", c.Revision())
	fmt.Fprintf(h, "block=%d layers=%d run=%d ring=%d", l.BlockTokens, l.Layers, l.RunBytes, l.RingBytes)
	for _, i := range c.Items() {
		fmt.Fprintf(h, " %s=%d", i.Name, i.Bytes)
	}
	return handoff.Digest(h.Sum(nil))
}
