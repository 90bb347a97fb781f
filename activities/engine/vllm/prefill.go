package vllm

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// Prefilled is what P answered.
type Prefilled struct {
	Transfer     *Transfer
	PromptTokens uint32
	CachedTokens uint32
	IDs          json.RawMessage // the prompt as P tokenized it; nil: not told
}

// Prefill has P compute the prompt and pin its blocks for a fetch. Ending ctx
// drops the connection, upon which P aborts and pins nothing. The header names
// the attempt (X-Request-Id); a repeat is another prefill, so the caller joins.
//
// When P does not say under which parameters, transfer is the typed reason and
// the answer's other fields are still good.
func (s *Server) Prefill(ctx context.Context, r Request, transferID string, header http.Header) (p Prefilled, transfer error, err error) {
	edits := append(r.limits("1"), edit{"stream", "false"}, edit{"stream_options", ""},
		edit{"kv_transfer_params", s.config.Style.wanted(transferID)})
	if r.replaceable() {
		edits = append(edits, edit{"return_token_ids", "true"})
	}
	resp, err := s.send(ctx, SideP, http.MethodPost, r.Path, r.Body.with(edits...), header)
	if err != nil {
		return Prefilled{}, nil, err
	}
	b, err := whole(ctx, SideP, r.Path, resp)
	if err != nil {
		return Prefilled{}, nil, err
	}
	var a prefillAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return Prefilled{}, nil, handoff.Errorf(handoff.CodeEngine, "P's answer is malformed")
	}
	p = a.prefilled(r)
	if s.config.Style == Mooncake {
		p.Transfer, transfer = s.bootstrapped(ctx, transferID)
	} else {
		p.Transfer, transfer = s.config.Style.transfer(a.Params)
	}
	return p, transfer, nil
}

type prefillAnswer struct {
	Params  json.RawMessage `json:"kv_transfer_params"`
	Choices []struct {
		IDs json.RawMessage `json:"prompt_token_ids"`
	} `json:"choices"`
	Usage struct {
		Prompt  uint32 `json:"prompt_tokens"`
		Details struct {
			Cached uint32 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

func (a *prefillAnswer) prefilled(r Request) Prefilled {
	p := Prefilled{PromptTokens: a.Usage.Prompt, CachedTokens: a.Usage.Details.Cached}
	if len(a.Choices) == 1 && r.replaceable() {
		if ids := a.Choices[0].IDs; len(ids) > 2 && ids[0] == '[' {
			p.IDs = ids
		}
	}
	return p
}

// bootstrapped asks P's Mooncake bootstrap server for its engine id.
func (s *Server) bootstrapped(ctx context.Context, transferID string) (*Transfer, error) {
	at, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(s.config.Bootstrap, "/")+"/query", nil)
	if err != nil || s.config.Bootstrap == "" {
		return nil, handoff.Errorf(handoff.CodeMismatch, "P's Mooncake bootstrap address is not known")
	}
	resp, err := s.client.Do(at)
	if err != nil {
		return nil, unanswered(ctx, SideP, "bootstrap", err)
	}
	b, err := whole(ctx, SideP, "bootstrap", resp)
	if err != nil {
		return nil, err
	}
	ranks := map[string]struct {
		Engine string `json:"engine_id"`
	}{}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(b, &ranks) != nil || len(ranks) != 1 {
		// With several ranks only P knows which of them computed.
		return nil, handoff.Errorf(handoff.CodeMismatch, "P's Mooncake bootstrap server names %s ranks, want 1", strconv.Itoa(len(ranks)))
	}
	for _, r := range ranks {
		if r.Engine != "" {
			return mooncake(transferID, r.Engine, s.config.Bootstrap), nil
		}
	}
	return nil, handoff.Errorf(handoff.CodeMismatch, "P's Mooncake bootstrap server names no engine")
}
