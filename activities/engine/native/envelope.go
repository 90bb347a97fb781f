package native

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
)

// MaxHeaderBytes bounds the headers that travel with a request.
const MaxHeaderBytes = 16 << 10

// Request is a client's request as it travels through the orchestrator in the
// place of a prompt: the raw body behind one line of JSON.
type Request struct {
	// Ref is under which an engine's own refusal is kept for the client.
	Ref    string      `json:"ref"`
	Path   string      `json:"path"`
	Header http.Header `json:"header,omitempty"` // forwarded to P and D
	Body   []byte      `json:"-"`
}

// Encode writes the request.
func (r Request) Encode() ([]byte, error) {
	head, err := json.Marshal(r)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInternal, "encode a request: %s", err)
	}
	if len(head) > MaxHeaderBytes {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "headers of %d bytes, limit %d", len(head), MaxHeaderBytes)
	}
	return append(append(head, '\n'), r.Body...), nil
}

// Decode reads what Encode wrote.
func Decode(b []byte) (Request, error) {
	head, body, ok := bytes.Cut(b, []byte("\n"))
	var r Request
	if !ok || len(head) > MaxHeaderBytes || json.Unmarshal(head, &r) != nil {
		return Request{}, handoff.Errorf(handoff.CodeInvalid, "not a request for a native engine")
	}
	r.Body = body
	return r, nil
}

// parse reads the body as well.
func parse(b []byte) (Request, vllm.Request, error) {
	r, err := Decode(b)
	if err != nil {
		return r, vllm.Request{}, err
	}
	v, err := vllm.ParseRequest(r.Path, r.Body)
	return r, v, err
}

// CountTokens estimates how many tokens the engines make of a request. P tells
// the true number; until then room is promised by this one.
func CountTokens(envelope []byte) uint32 {
	r, err := Decode(envelope)
	if err != nil {
		return 1
	}
	b, err := vllm.ParseBody(r.Body)
	if err != nil {
		return 1
	}
	return tokensOf(b)
}

// Tokens is CountTokens of a request that was read already.
func Tokens(r vllm.Request) uint32 { return tokensOf(r.Body) }

func tokensOf(b vllm.Body) uint32 {
	n := 1
	if prompt := b.Get("prompt"); prompt != nil {
		n += promptTokens(prompt)
	}
	if messages := b.Get("messages"); messages != nil {
		n += chatTokens(messages)
	}
	return uint32(min(n, handoff.MaxPromptTokens))
}

const (
	bytesPerToken = 4
	tokensPerPart = 1024 // of an image or a sound
	tokensPerTurn = 8
)

func promptTokens(prompt json.RawMessage) int {
	if prompt[0] == '[' && len(prompt) > 1 && prompt[1] != '"' {
		return bytes.Count(prompt, []byte(",")) + 1 // token ids
	}
	return len(prompt) / bytesPerToken
}

func chatTokens(messages json.RawMessage) (n int) {
	var turns []struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(messages, &turns) != nil {
		return len(messages) / bytesPerToken
	}
	for _, t := range turns {
		var parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		n += tokensPerTurn
		if len(t.Content) == 0 || t.Content[0] != '[' || json.Unmarshal(t.Content, &parts) != nil {
			n += len(t.Content) / bytesPerToken
			continue
		}
		for _, p := range parts {
			if p.Type == "text" {
				n += len(p.Text) / bytesPerToken
			} else {
				n += tokensPerPart
			}
		}
	}
	return n
}
