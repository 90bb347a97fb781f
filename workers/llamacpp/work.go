package llamacpp

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/workers/llamacpp/libllama"
	"github.com/surehand/surehand/workers/refengine"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// Defaults and limits.
const (
	DefaultContext = 1024 // tokens of prompt and answer together
	DefaultSlots   = 8    // sequences at once
	maxContext     = 1 << 20
	maxSlots       = 256
	maxChunk       = 256 // tokens of one decode
	blockTokens    = 16
	maxThreads     = 256
)

// Options of one engine's compute.
type Options struct {
	Libraries string // folder of libllama and the libggml beside it
	Weights   string // a GGUF file
	Template  string // of chats, by name; empty: the file's own
	Context   int    // 0: DefaultContext
	Slots     int    // 0: DefaultSlots
	Threads   int    // 0: 1
}

// Work is llama.cpp as a compute. Open, then Close.
type Work struct {
	o        Options
	revision string
	model    *libllama.Model
	token    int // bytes of state that each token adds
	base     int // bytes of a state besides

	mu      sync.Mutex // of context and scratch: runs share them with Forget
	context *libllama.Context
	scratch []byte
}

var (
	_ compute.Compute = (*Work)(nil)
	_ compute.Chats   = (*Work)(nil)
)

// Open loads library and weights and measures a state.
func Open(o Options) (_ *Work, err error) {
	for _, d := range []struct {
		name      string
		field     *int
		otherwise int
		limit     int
	}{{"context", &o.Context, DefaultContext, maxContext}, {"slots", &o.Slots, DefaultSlots, maxSlots}, {"threads", &o.Threads, 1, maxThreads}} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
		if *d.field < 1 || *d.field > d.limit {
			return nil, handoff.Errorf(handoff.CodeInvalid, "%s is %d, want 1..%d", d.name, *d.field, d.limit)
		}
	}
	w := &Work{o: o}
	if w.revision, err = revision(o); err != nil {
		return nil, err
	}
	if w.model, err = libllama.Load(o.Libraries, o.Weights); err != nil {
		return nil, err
	}
	if limit := w.model.Context(); o.Context > limit {
		w.model.Close()
		return nil, handoff.Errorf(handoff.CodeInvalid, "context of %d tokens, the weights are for %d", o.Context, limit)
	}
	if w.context, err = w.model.NewContext(libllama.Options{Sequences: o.Slots, Tokens: o.Context, Batch: min(maxChunk, o.Context), Threads: o.Threads}); err != nil {
		w.model.Close()
		return nil, err
	}
	if err := w.measure(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// revision names weights and library: engines that differ in either never hand
// over. The CPU's own variants of the kernels are left out: their states fit.
func revision(o Options) (string, error) {
	library, err := filepath.Glob(filepath.Join(o.Libraries, "libllama.*so*"))
	if err != nil || len(library) == 0 {
		return "", handoff.Errorf(handoff.CodeInvalid, "no libllama in the folder of llama.cpp's libraries")
	}
	var sums []any
	for _, path := range []string{o.Weights, library[0]} {
		f, err := os.Open(path)
		if err != nil {
			return "", handoff.Errorf(handoff.CodeInvalid, "%s", err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", handoff.Errorf(handoff.CodeInvalid, "%s", err)
		}
		sums = append(sums, h.Sum(nil)[:16])
	}
	return fmt.Sprintf("gguf-%x-libllama-%x", sums...), nil
}

// measure finds the size of a state from those of one token and of two.
func (w *Work) measure() error {
	var sizes [3]int
	for n := 1; n < len(sizes); n++ {
		if _, err := w.context.Decode(0, n-1, []int{0}, false); err != nil {
			return err
		}
		sizes[n] = w.context.StateBytes(0)
	}
	w.token, w.base = sizes[2]-sizes[1], 2*sizes[1]-sizes[2]
	if w.token < 1 || w.base < 0 || w.base > handoff.MaxPieceBytes || w.token > handoff.MaxPieceBytes/blockTokens {
		return handoff.Errorf(handoff.CodeInvalid, "a state of %d bytes and %d a token does not fit into pieces", w.base, w.token)
	}
	return w.context.Clear(0)
}

// Close frees context and weights; the engine that used them must be closed.
func (w *Work) Close() error {
	w.context.Close()
	w.model.Close()
	return nil
}

func (w *Work) Revision() string { return w.revision }
func (w *Work) Context() int     { return w.o.Context }
func (w *Work) MaxChunk() int    { return min(maxChunk, w.o.Context) }
func (w *Work) Shares() bool     { return false } // a state is one request's

// Layout: blocks carry the state's bytes in their order.
func (w *Work) Layout(blocks, slots int) paged.Layout {
	return paged.Layout{BlockTokens: blockTokens, Layers: 1, RunBytes: blockTokens * w.token, Blocks: blocks, Slots: slots, ItemsBytes: itemsBytes(w.base)}
}

// Caches: bytes whose order only the library knows.
func (w *Work) Caches() []layout.Cache {
	return []layout.Cache{{Name: "state", Layers: 1, KVHeads: 1, HeadDim: uint32(w.token), DType: "int8", Packing: layout.Latent, Order: layout.NHD, Interior: "llama.cpp"}}
}

func (w *Work) Items() []model.Item { return items(w.base) }

// Encode makes tokens; it does not touch the context.
func (w *Work) Encode(prompt []byte) ([]int, error) { return w.model.Tokenize(prompt, w.o.Context) }

// Render makes the prompt of a chat.
func (w *Work) Render(messages []compute.Message) ([]byte, error) {
	turns := make([]libllama.Message, len(messages))
	for i, m := range messages {
		turns[i] = libllama.Message(m)
	}
	return w.model.Render(w.o.Template, turns)
}

// Forget clears the sequence of q's slot.
func (w *Work) Forget(q *paged.Sequence) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.context.Clear(int(q.Slot()))
}

// Configure opens the work of an engine and sizes it: each slot of the engine is
// a sequence, and its blocks hold half of what all sequences could, since those
// that decode and those that are handed over seldom fill their context.
func Configure(c *refengine.Config, o Options) (*Work, error) {
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	if c.Model == "" {
		c.Model = strings.TrimSuffix(filepath.Base(o.Weights), filepath.Ext(o.Weights))
	}
	o.Slots = c.Slots
	w, err := Open(o)
	if err != nil {
		return nil, err
	}
	if c.Blocks == 0 {
		c.Blocks = max(w.o.Context, w.o.Slots*w.o.Context/2) / blockTokens
	}
	c.Work, c.Compute = w, ""
	return w, nil
}
