package llamacpp

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/workers/llamacpp/install"
	"github.com/surehand/surehand/workers/llamacpp/libllama"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/model"
	"github.com/surehand/surehand/workers/refengine/paged"
)

// works are those that tests share, by the model's name: to open one reads and
// digests all of its weights.
var works = map[string]*Work{}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for name, w := range works {
			if err := w.Close(); err != nil {
				fmt.Fprintln(os.Stderr, name, err)
				code = max(code, 1)
			}
		}
		os.Exit(code)
	}))
}

// each runs a test on every model that is installed.
func each(t *testing.T, test func(t *testing.T, w *Work)) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	for name, weights := range install.Models {
		t.Run(name, func(t *testing.T) {
			at, err := install.Cached(filepath.Join(cache, "surehand", "llamacpp"), weights)
			if err != nil {
				t.Skipf("%s; task e2e:llamacpp installs it", err)
			}
			if works[name] == nil {
				w, err := Open(Options{Libraries: at.Libraries, Weights: at.Weights, Context: 256, Slots: 4})
				if err != nil {
					t.Fatal(err)
				}
				works[name] = w
			}
			test(t, works[name])
		})
	}
}

// arena for the work's sequences, and one of them.
func arena(t *testing.T, w *Work) *paged.Arena {
	t.Helper()
	l := w.Layout(64, 4)
	a, err := paged.New(l, make([]byte, l.Bytes()), paged.Options{Poison: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(t *testing.T, a *paged.Arena, tokens int) *paged.Sequence {
	t.Helper()
	blocks, err := a.Allocate(a.Layout().BlocksFor(tokens))
	if err != nil {
		t.Fatal(err)
	}
	q, err := a.Open(nil, blocks)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// prompt of n tokens.
func prompt(t *testing.T, w *Work, n int) []int {
	t.Helper()
	text := bytes.Repeat([]byte("The city of Venice stands on many small islands, and its people go by boat. "), 1+n/10)
	tokens, err := w.model.Tokenize(text, 4096)
	if err != nil || len(tokens) < n {
		t.Fatal(len(tokens), err)
	}
	return tokens[:n]
}

// prefilled computes a prompt at P, in chunks.
func prefilled(t *testing.T, w *Work, q *paged.Sequence, tokens []int, s compute.Sampling) {
	t.Helper()
	p, err := w.Prefill(q, handoff.Attempt{}, tokens, 0, s)
	for at := 0; at < len(tokens) && err == nil; at += 64 {
		err = p.Chunk(min(64, len(tokens)-at), nil)
	}
	if err == nil {
		err = p.Finish()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// moved copies every piece, as a transfer does.
func moved(t *testing.T, w *Work, from, to *paged.Sequence, tokens int) {
	t.Helper()
	for i := range w.Layout(1, 1).BlocksFor(tokens) {
		source, err := from.Run(0, i)
		if err != nil {
			t.Fatal(err)
		}
		target, err := to.Run(0, i)
		if err != nil {
			t.Fatal(err)
		}
		copy(target, source)
	}
	copy(to.Items(), from.Items())
}

// steps of a decode, as text with marks between tokens.
func steps(t *testing.T, d compute.Decode, n int) (out string) {
	t.Helper()
	for range n {
		text, end, err := d.Step()
		if err != nil {
			t.Fatal(err)
		}
		if end {
			return out + "<end>"
		}
		out += "|" + string(text)
	}
	return out
}

// plain is the library alone: one sequence, never exported, the sampler never saved.
func plain(t *testing.T, w *Work, tokens []int, s compute.Sampling, n int) (out string) {
	t.Helper()
	c, err := w.model.NewContext(libllama.Options{Sequences: 1, Tokens: 256, Batch: 64, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	topP := float32(s.TopP)
	if topP == 0 {
		topP = 1
	}
	sampler, err := model.NewSampler(float32(s.Temperature), topP, s.Seed)
	if err != nil {
		t.Fatal(err)
	}
	var logits []float32
	for at := 0; at < len(tokens); at += 64 {
		end := min(at+64, len(tokens))
		if logits, err = c.Decode(0, at, tokens[at:end], end == len(tokens)); err != nil {
			t.Fatal(err)
		}
	}
	for pos := len(tokens); pos < len(tokens)+n; pos++ {
		token, err := sampler.Draw(logits)
		if err != nil {
			t.Fatal(err)
		}
		if w.model.IsEnd(token) {
			return out + "<end>"
		}
		text, err := w.model.Piece(token)
		if err != nil {
			t.Fatal(err)
		}
		out += "|" + string(text)
		if logits, err = c.Decode(0, pos, []int{token}, true); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestAStateThatMovedGivesTheTokensOfOneThatStayed(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		a := arena(t, w)
		for name, s := range map[string]compute.Sampling{"greedy": {}, "seeded": {Temperature: 0.8, TopP: 0.9, Seed: 7}} {
			for _, n := range lengths {
				t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
					p, d := open(t, a, n), open(t, a, n+12)
					defer closed(t, w, p, d)
					tokens := prompt(t, w, n)
					prefilled(t, w, p, tokens, s)
					moved(t, w, p, d, n)
					if got, want := steps(t, w.Decode(d, handoff.Attempt{}, n), 12), plain(t, w, tokens, s, 12); got != want {
						t.Errorf("moved  %s\nstayed %s", got, want)
					}
				})
			}
		}
	})
}

func closed(t *testing.T, w *Work, all ...*paged.Sequence) {
	t.Helper()
	for _, q := range all {
		slot := int(q.Slot())
		if err := w.Forget(q); err != nil {
			t.Error(err)
		}
		if n := w.context.StateBytes(slot); n >= w.size(1) {
			t.Errorf("a forgotten sequence still has a state of %d bytes", n)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// libllama takes most of these states without a word.
func TestOneWrongBitAnywhereGivesNoToken(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		const n = 40
		a := arena(t, w)
		p := open(t, a, n)
		defer closed(t, w, p)
		prefilled(t, w, p, prompt(t, w, n), compute.Sampling{})
		block := blockTokens * w.token
		for name, flip := range map[string]func(q *paged.Sequence) *byte{
			"first block": func(q *paged.Sequence) *byte { return at(t, q, 0, 0) }, "its end": func(q *paged.Sequence) *byte { return at(t, q, 0, block-1) },
			"middle": func(q *paged.Sequence) *byte { return at(t, q, 1, block/2) }, "last block": func(q *paged.Sequence) *byte { return at(t, q, 2, 7) },
			"size": func(q *paged.Sequence) *byte { return &headItem.Of(q.Items())[0] }, "tokens": func(q *paged.Sequence) *byte { return &headItem.Of(q.Items())[8] },
			"digest": func(q *paged.Sequence) *byte { return &headItem.Of(q.Items())[20] }, "sampler": func(q *paged.Sequence) *byte { return &samplerItem.Of(q.Items())[9] },
			"first token": func(q *paged.Sequence) *byte { return &firstItem.Of(q.Items())[0] },
		} {
			d := open(t, a, n)
			moved(t, w, p, d, n)
			*flip(d) ^= 1
			text, end, err := w.Decode(d, handoff.Attempt{}, n).Step()
			if handoff.CodeOf(err) != handoff.CodeIntegrity || len(text) > 0 || end {
				t.Errorf("%s: %q %v %v", name, text, end, err)
			}
			closed(t, w, d)
		}
	})
}

func at(t *testing.T, q *paged.Sequence, block, offset int) *byte {
	t.Helper()
	b, err := q.Run(0, block)
	if err != nil {
		t.Fatal(err)
	}
	return &b[offset]
}

func TestAStateOfAnotherLengthIsRefused(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		a := arena(t, w)
		p, d := open(t, a, 40), open(t, a, 60)
		defer closed(t, w, p, d)
		prefilled(t, w, p, prompt(t, w, 40), compute.Sampling{})
		moved(t, w, p, d, 40)
		for _, n := range []int{39, 41, 1} {
			if _, _, err := w.Decode(d, handoff.Attempt{}, n).Step(); handoff.CodeOf(err) != handoff.CodeIntegrity {
				t.Errorf("%d tokens: %v", n, err)
			}
		}
	})
}

// The library itself, without our digest: what it refuses leaves nothing behind.
func TestAnImportThatFailsLeavesAnEmptySequence(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		a := arena(t, w)
		p := open(t, a, 40)
		defer closed(t, w, p)
		prefilled(t, w, p, prompt(t, w, 40), compute.Sampling{})
		state := make([]byte, w.size(40))
		if _, err := w.context.Export(int(p.Slot()), state); err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{8, len(state) / 2, len(state) - 1} {
			if err := w.context.Import(3, state[:cut]); handoff.CodeOf(err) != handoff.CodeIntegrity {
				t.Errorf("%d of %d bytes: %v", cut, len(state), err)
			}
			if n := w.context.StateBytes(3); n >= w.size(1) {
				t.Errorf("%d bytes of a state stay behind", n)
			}
		}
	})
}

func TestSequencesThatRunInTurnKeepApart(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		a := arena(t, w)
		p, x, y := open(t, a, 100), open(t, a, 70), open(t, a, 90)
		defer closed(t, w, p, x, y)
		one, two := prompt(t, w, 50), prompt(t, w, 70)[20:]
		for q, tokens := range map[*paged.Sequence][]int{x: one, y: two} {
			s := open(t, a, len(tokens))
			prefilled(t, w, s, tokens, compute.Sampling{})
			moved(t, w, s, q, len(tokens))
			closed(t, w, s)
		}
		dx, dy := w.Decode(x, handoff.Attempt{}, len(one)), w.Decode(y, handoff.Attempt{}, len(two))
		run, err := w.Prefill(p, handoff.Attempt{}, prompt(t, w, 100), 0, compute.Sampling{})
		if err != nil {
			t.Fatal(err)
		}
		var gotX, gotY string
		for range 10 {
			gotX += steps(t, dx, 1)
			if err := run.Chunk(10, nil); err != nil {
				t.Fatal(err)
			}
			gotY += steps(t, dy, 1)
		}
		if want := plain(t, w, one, compute.Sampling{}, 10); gotX != want {
			t.Errorf("in turn %s\nalone   %s", gotX, want)
		}
		if want := plain(t, w, two, compute.Sampling{}, 10); gotY != want {
			t.Errorf("in turn %s\nalone   %s", gotY, want)
		}
	})
}

func TestTheChatTemplateIsTheModels(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		defer func() { w.o.Template = "" }()
		if t.Name() == "TestTheChatTemplateIsTheModels/"+install.Gemma.Model {
			if _, err := w.Render([]compute.Message{{Role: "user", Content: "Hi"}}); handoff.CodeOf(err) != handoff.CodeInvalid {
				t.Errorf("weights without a template: %v", err)
			}
			w.o.Template = install.Gemma.Template
		}
		got, err := w.Render([]compute.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"}})
		if err != nil {
			t.Fatal(err)
		}
		want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
		if w.o.Template == "gemma" {
			want = "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
		}
		if string(got) != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	})
}

func TestWhatIsNotLlamaIsRefusedByName(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		for name, o := range map[string]Options{
			"no folder": {Libraries: t.TempDir(), Weights: w.o.Weights}, "no weights": {Libraries: w.o.Libraries, Weights: filepath.Join(t.TempDir(), "none.gguf")},
			"weights of another kind": {Libraries: w.o.Libraries, Weights: os.Args[0]}, "context": {Libraries: w.o.Libraries, Weights: w.o.Weights, Context: 1 << 19},
			"slots": {Libraries: w.o.Libraries, Weights: w.o.Weights, Slots: maxSlots + 1},
		} {
			if _, err := Open(o); handoff.CodeOf(err) != handoff.CodeInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// What the engine tells transferd and the registry of its state is what moves, and
// two such engines know that they fit.
func TestAStateIsDescribedAsItMoves(t *testing.T) {
	each(t, func(t *testing.T, w *Work) {
		d := compute.Described(w)
		b, err := rpc.EncodeLayout(d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rpc.DecodeLayout(b)
		if err != nil || got.Layout.Fingerprint() != d.Layout.Fingerprint() {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, err := layout.Between(got, d); err != nil {
			t.Error(err)
		}
		s, l := d.Layout.Shape("r", 130), w.Layout(1, 1)
		if len(s.Groups) != 1 || int(s.Groups[0].BlockBytes) != l.RunBytes || int(s.Groups[0].Blocks) != l.BlocksFor(130) {
			t.Errorf("%+v, want blocks of %d bytes", s, l.RunBytes)
		}
		var items int
		for _, i := range s.Items {
			items += int(i.Bytes)
		}
		if items > l.ItemsBytes {
			t.Errorf("items of %d bytes, a slot has %d", items, l.ItemsBytes)
		}
	})
}
