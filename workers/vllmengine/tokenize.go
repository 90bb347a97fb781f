package vllmengine

import (
	"context"
	"encoding/json"
	"io"
	"unicode/utf8"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

// Limits of a prompt in tokens: those of the handoff, and some digits each.
const maxTokensBytes = maxMessageBytes

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// tokenizing is the body of a question to vLLM's tokenizer.
type tokenizing struct {
	Model    string    `json:"model"`
	Prompt   *string   `json:"prompt,omitempty"`
	Messages []message `json:"messages,omitempty"`
}

// Tokenize makes a prompt of what the client asks, with vLLM's own tokenizer and
// template. The prompt is a JSON list of token ids: P and D are given the same
// ones, whatever a template put between them.
func (s *service) Tokenize(ctx context.Context, m *enginev1.TokenizeRequest) (*enginev1.TokenizeAnswer, error) {
	a, err := s.e.tokenize(ctx, m)
	return a, rpc.Status(err)
}

func (e *Engine) tokenize(ctx context.Context, m *enginev1.TokenizeRequest) (*enginev1.TokenizeAnswer, error) {
	hello, _, _, here := e.connector.state()
	if !here {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "vLLM, or its connector, is away")
	}
	q := tokenizing{Model: hello.GetModel()}
	for _, one := range m.GetMessages() {
		q.Messages = append(q.Messages, message{one.GetRole(), one.GetContent()})
	}
	if q.Messages == nil {
		if !utf8.Valid(m.GetPrompt()) {
			return nil, handoff.Errorf(handoff.CodeInvalid, "the prompt is no text")
		}
		text := string(m.GetPrompt())
		q.Prompt = &text
	}
	ids, err := e.vllm.tokenize(ctx, q)
	if err != nil {
		return nil, err
	}
	prompt, err := json.Marshal(ids)
	if err != nil || len(ids) == 0 {
		return nil, handoff.Errorf(handoff.CodeInvalid, "a prompt of no tokens")
	}
	return &enginev1.TokenizeAnswer{Prompt: prompt, Tokens: uint32(len(ids))}, nil
}

func (s *server) tokenize(ctx context.Context, q tokenizing) ([]uint32, error) {
	resp, err := s.send(ctx, pathTokenize, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var out struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxTokensBytes)).Decode(&out); err != nil {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "the prompt's tokens cannot be read, or are too many")
	}
	return out.Tokens, nil
}

// tokensOf checks that a prompt is what Tokenize made.
func tokensOf(prompt []byte) (json.RawMessage, error) {
	var ids []uint32
	if err := json.Unmarshal(prompt, &ids); err != nil || len(ids) == 0 {
		return nil, handoff.Errorf(handoff.CodeInvalid, "the prompt is no list of token ids")
	}
	if len(ids) > handoff.MaxPromptTokens {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "%d prompt tokens, limit %d", len(ids), handoff.MaxPromptTokens)
	}
	return prompt, nil
}
