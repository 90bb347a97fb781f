package libllama

import (
	"runtime"
	"unsafe"

	"github.com/surehand/surehand/contracts/handoff"
)

// Options of a context.
type Options struct {
	Sequences int // at once
	Tokens    int // of each
	Batch     int // of one Decode
	Threads   int
}

// Context holds the KV of some sequences, each in cells of its own.
type Context struct {
	f              *functions
	handle, memory uintptr
	vocabulary     int
	tokens         int // of a sequence

	// Scratch of one batch, pinned for as long as the context lives.
	pin       runtime.Pinner
	batch     batch
	token     []int32
	position  []int32
	counts    []int32
	sequence  []*int32
	wanted    []int8
	sequences []int32 // the one value that every token's list has
}

// library's defaults, which prove where the first fields lie.
var known = contextFields{tokens: 512, batch: 2048, microbatch: 512, sequences: 1}

// NewContext allocates the KV.
func (m *Model) NewContext(o Options) (*Context, error) {
	p, err := defaults(m.f.contextDefaults)
	if err != nil {
		return nil, err
	}
	fields := p.fields()
	if *fields != known {
		return nil, handoff.Errorf(handoff.CodeInvalid, "the defaults of this libllama are not those that are known: %+v", *fields)
	}
	if most := int(m.f.maxSequences()); o.Sequences < 1 || o.Sequences > most {
		return nil, handoff.Errorf(handoff.CodeInvalid, "%d sequences, want 1..%d", o.Sequences, most)
	}
	*fields = contextFields{tokens: uint32(o.Sequences * o.Tokens), batch: uint32(o.Batch), microbatch: uint32(o.Batch), sequences: uint32(o.Sequences)}
	handle := p.by(m.f.contextNew, m.handle)
	if handle == 0 {
		return nil, handoff.Errorf(handoff.CodeCapacity, "libllama makes no context of %d sequences of %d tokens", o.Sequences, o.Tokens)
	}
	c := &Context{f: m.f, handle: handle, memory: m.f.contextMemory(handle), vocabulary: m.Vocabulary(), tokens: int(m.f.contextTokens(handle))}
	if c.tokens < o.Tokens {
		m.f.contextFree(handle)
		return nil, handoff.Errorf(handoff.CodeCapacity, "libllama gives a sequence %d tokens, want %d", c.tokens, o.Tokens)
	}
	m.f.contextThreads(handle, int32(o.Threads), int32(o.Threads))
	c.scratch(o.Batch)
	return c, nil
}

func (c *Context) scratch(n int) {
	c.token, c.position, c.counts = make([]int32, n), make([]int32, n), make([]int32, n)
	c.sequence, c.wanted, c.sequences = make([]*int32, n), make([]int8, n), make([]int32, n)
	for i := range n {
		c.counts[i], c.sequence[i] = 1, &c.sequences[i]
	}
	c.batch = batch{tokens: &c.token[0], positions: &c.position[0], sequences: &c.counts[0], sequence: &c.sequence[0], logits: &c.wanted[0]}
	for _, p := range []any{&c.token[0], &c.position[0], &c.counts[0], &c.sequence[0], &c.sequences[0], &c.wanted[0]} {
		c.pin.Pin(p)
	}
}

// Decode feeds tokens to a sequence from a position on. With logits it gives
// those after the last token, valid until the next call.
func (c *Context) Decode(sequence, position int, tokens []int, logits bool) ([]float32, error) {
	if len(tokens) == 0 || len(tokens) > len(c.token) || position < 0 || position+len(tokens) > c.tokens {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "%d tokens at position %d, a sequence has %d and a batch %d", len(tokens), position, c.tokens, len(c.token))
	}
	for i, t := range tokens {
		c.token[i], c.position[i], c.sequences[i], c.wanted[i] = int32(t), int32(position+i), int32(sequence), 0
	}
	if logits {
		c.wanted[len(tokens)-1] = 1
	}
	c.batch.count = int32(len(tokens))
	if status := c.f.decodeBatch(c.handle, &c.batch); status != 0 {
		return nil, handoff.Errorf(handoff.CodeEngine, "llama_decode answers %d", status)
	}
	if !logits {
		return nil, nil
	}
	at := c.f.logits(c.handle, int32(len(tokens)-1))
	if at == nil {
		return nil, handoff.Errorf(handoff.CodeEngine, "libllama has no logits")
	}
	return unsafe.Slice(at, c.vocabulary), nil
}

// Clear forgets a sequence.
func (c *Context) Clear(sequence int) error {
	if !c.f.sequenceRemove(c.memory, int32(sequence), -1, -1) {
		return handoff.Errorf(handoff.CodeEngine, "libllama does not clear a sequence")
	}
	return nil
}

// StateBytes is the size of a sequence's state.
func (c *Context) StateBytes(sequence int) int { return int(c.f.stateSize(c.handle, int32(sequence))) }

// Export writes a sequence's state into b and gives its size.
func (c *Context) Export(sequence int, b []byte) (int, error) {
	n := int(c.f.stateGet(c.handle, &b[0], uintptr(len(b)), int32(sequence)))
	if n == 0 || n > len(b) {
		return 0, handoff.Errorf(handoff.CodeEngine, "libllama does not export a state of %d bytes into %d", c.StateBytes(sequence), len(b))
	}
	return n, nil
}

// Import makes b, which must have been checked, a sequence's state. When that
// fails the sequence is cleared: the library would decode from half of it.
func (c *Context) Import(sequence int, b []byte) error {
	if err := c.Clear(sequence); err != nil {
		return err
	}
	if n := int(c.f.stateSet(c.handle, &b[0], uintptr(len(b)), int32(sequence))); n != len(b) {
		if err := c.Clear(sequence); err != nil {
			return err
		}
		return handoff.Errorf(handoff.CodeIntegrity, "libllama took %d of %d bytes of a state", n, len(b))
	}
	return nil
}

// Close frees the KV.
func (c *Context) Close() {
	c.f.contextFree(c.handle)
	c.handle = 0
	c.pin.Unpin()
}
