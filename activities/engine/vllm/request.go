package vllm

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// Paths that a P/D pair serves.
const (
	PathCompletions = "/v1/completions"
	PathChat        = "/v1/chat/completions"
)

// Request is one client request as it is sent to P and to D.
type Request struct {
	Path string
	Body Body

	Model     string
	Stream    bool
	MaxTokens uint32 // asked for; 0: not said
}

// ParseRequest reads what we must know of a body and refuses what one handoff
// cannot be: several prompts or several samples would read P's blocks more than
// once, and the first reader's end frees them under the second.
func ParseRequest(path string, raw []byte) (Request, error) {
	if path != PathCompletions && path != PathChat {
		return Request{}, handoff.Errorf(handoff.CodeInvalid, "no P/D hand-off of this path")
	}
	b, err := ParseBody(raw)
	if err != nil {
		return Request{}, err
	}
	r := Request{Path: path, Body: b}
	if err := r.read(); err != nil {
		return Request{}, err
	}
	return r, r.single()
}

func (r *Request) read() error {
	for name, to := range map[string]any{"model": &r.Model, "stream": &r.Stream} {
		if v := r.Body.Get(name); v != nil {
			if err := json.Unmarshal(v, to); err != nil {
				return handoff.Errorf(handoff.CodeInvalid, "field %q has the wrong type", name)
			}
		}
	}
	if r.Model == "" {
		return handoff.Errorf(handoff.CodeInvalid, "name a model")
	}
	for _, name := range []string{"max_completion_tokens", "max_tokens"} {
		v := r.Body.Get(name)
		if v == nil || r.MaxTokens > 0 {
			continue
		}
		if err := json.Unmarshal(v, &r.MaxTokens); err != nil {
			return handoff.Errorf(handoff.CodeInvalid, "field %q is no positive number", name)
		}
	}
	if r.Body.Get("kv_transfer_params") != nil {
		return handoff.Errorf(handoff.CodeDenied, "kv_transfer_params are the orchestrator's to set")
	}
	return nil
}

// single refuses more than one prompt or sample.
func (r *Request) single() error {
	for _, name := range []string{"n", "best_of"} {
		v := r.Body.Get(name)
		var n float64
		if v == nil {
			continue
		}
		if err := json.Unmarshal(v, &n); err != nil || n != 1 {
			return handoff.Errorf(handoff.CodeInvalid, "%s must be 1: one hand-off is one sequence", name)
		}
	}
	if v := r.Body.Get("use_beam_search"); v != nil && string(v) != "false" {
		return handoff.Errorf(handoff.CodeInvalid, "beam search cannot be handed off")
	}
	prompt := r.Body.Get("prompt")
	if r.Path != PathCompletions || prompt == nil || prompt[0] != '[' {
		return nil
	}
	var many []json.RawMessage
	if err := json.Unmarshal(prompt, &many); err != nil {
		return handoff.Errorf(handoff.CodeInvalid, "field %q is malformed", "prompt")
	}
	if len(many) > 1 && (many[0][0] == '"' || many[0][0] == '[') {
		return handoff.Errorf(handoff.CodeInvalid, "%d prompts: one hand-off is one sequence", len(many))
	}
	return nil
}

// limits replaces how many tokens are generated, in whichever fields say it.
func (r *Request) limits(tokens string) []edit {
	edits := []edit{{"max_tokens", tokens}, {"min_tokens", ""}}
	if r.Body.has("max_completion_tokens") {
		edits = append(edits, edit{"max_completion_tokens", tokens})
	}
	return edits
}

// replaceable says whether D may be given P's token ids in place of the prompt:
// where the answer does not show the prompt again.
func (r *Request) replaceable() bool {
	if r.Path != PathCompletions {
		return false // a chat is rendered by its template, which has no place for ids
	}
	prompt := r.Body.Get("prompt")
	if prompt == nil || r.Body.Get("prompt_embeds") != nil {
		return false
	}
	echo := r.Body.Get("echo")
	return (echo == nil || string(echo) == "false") && strings.IndexByte(`"[`, prompt[0]) >= 0
}

// fetch is what D is told besides the client's words: where the prompt's state
// is, as which tokens P read it, and under which salt D may keep it.
func (r *Request) fetch(p Prefilled, salt string) []edit {
	var edits []edit
	if p.Transfer != nil {
		edits = append(edits, edit{"kv_transfer_params", string(p.Transfer.Params)}, edit{"cache_salt", strconv.Quote(salt)})
	}
	if p.IDs != nil && r.replaceable() {
		edits = append(edits, edit{"prompt", string(p.IDs)})
	}
	return edits
}
