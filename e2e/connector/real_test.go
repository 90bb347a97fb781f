package connector

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/dev"
	"github.com/surehand/surehand/workers/llamacpp/install"
	"github.com/surehand/surehand/workers/llamacpp/libllama"
	"github.com/surehand/surehand/workers/vllmenv"
)

// Real weights, which two engines that have nothing in common read of one file:
// llama.cpp quantized as they are, vLLM of a folder that was made of it. Of thirty
// layers, so that a long prompt takes P seconds. p1 announces layer by layer, p2 once
// the prompt is computed.
func TestRealWeights(t *testing.T) {
	cache, err := os.UserCacheDir()
	must(t, err)
	at, err := install.Install(t.Context(), dev.LlamacppCache(filepath.Join(cache, "surehand", "bin")), install.SmolLM, os.Stderr)
	must(t, err)
	folder, err := rig.env.Weights(t.Context(), at.Model, at.Weights, install.SmolLM.SHA256, os.Stderr)
	must(t, err)
	r := others(t, "real", 2, 1, func(s fleet.Seat) vllmenv.Options {
		return vllmenv.Options{Model: folder, Served: at.Model, CacheBytes: 128 << 20, Sequences: 2, Context: context1}
	}, map[string]map[string]any{"p1": {"serial_below": handoff.OverlapTokens}, "p2": {"serial_below": never}})
	t.Run("answer as llama.cpp does", func(t *testing.T) { r.answersAsLlamaCPP(t, at) })
	t.Run("are read while the prompt is computed", func(t *testing.T) { r.overlaps(t, at.Model) })
	t.Run("are free again when, with a part of them moved,", func(t *testing.T) { r.struck(t, at.Model) })
	t.Run("what the prefill hides of the transfer", func(t *testing.T) { r.exposed(t, at.Model) })
	must(t, r.AtRest(t.Context(), restWithin))
}

const never = 1 << 31 // tokens

func (r *engines) answersAsLlamaCPP(t *testing.T, at install.Installed) {
	alone, err := libllama.Load(at.Libraries, at.Weights)
	must(t, err)
	defer alone.Close()
	const tokens, alike = 16, 4 // the first roundings of a quantized sum lie apart
	for _, prompt := range []string{"The city of Venice is known for", "The capital of France is", "Water boils at a temperature of"} {
		want := greedy(t, alone, prompt, tokens)
		a := r.gateway().Send(within(t), traffic.Ask{Model: at.Model, Prompt: prompt, MaxTokens: tokens})
		must(t, a.Whole())
		t.Logf("%q: vLLM %q, llama.cpp %q; first token after %s", prompt, a.Text, strings.Join(want, ""), a.FirstToken)
		if !strings.HasPrefix(a.Text, strings.Join(want[:alike], "")) {
			t.Errorf("%q, want its beginning to be %q", a.Text, strings.Join(want[:alike], ""))
		}
		if a.Usage.Direct != a.Usage.Prompt {
			t.Errorf("usage is %+v, want all direct", a.Usage)
		}
	}
	chat := r.gateway().Send(within(t), traffic.Ask{Model: at.Model, Prompt: "What is the capital of France?", MaxTokens: 24, Chat: true})
	must(t, chat.Whole())
	if !strings.Contains(chat.Text, "Paris") {
		t.Errorf("%q", chat.Text)
	}
	t.Logf("chat: %q", chat.Text)
}

// greedy is what llama.cpp says, token by token.
func greedy(t *testing.T, m *libllama.Model, prompt string, tokens int) (out []string) {
	t.Helper()
	c, err := m.NewContext(libllama.Options{Sequences: 1, Tokens: context1, Batch: 64, Threads: 1})
	must(t, err)
	defer c.Close()
	next, err := m.Tokenize([]byte(prompt), context1)
	must(t, err)
	for pos := 0; len(out) < tokens; {
		logits, err := c.Decode(0, pos, next, true)
		must(t, err)
		pos += len(next)
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		text, err := m.Piece(best)
		must(t, err)
		out, next = append(out, string(text)), []int{best}
	}
	return out
}
