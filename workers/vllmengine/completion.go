package vllmengine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
)

const (
	dialTimeout     = time.Second
	pathCompletions = "/v1/completions"
	pathTokenize    = "/tokenize"
)

// completion is the body of one request to vLLM.
type completion struct {
	Model         string            `json:"model"`
	Prompt        json.RawMessage   `json:"prompt"` // token ids: no tokenizer looks at them again
	MaxTokens     uint32            `json:"max_tokens"`
	Temperature   float64           `json:"temperature"`
	TopP          float64           `json:"top_p,omitempty"`
	Seed          *uint64           `json:"seed,omitempty"`
	Stop          []string          `json:"stop,omitempty"`
	Stream        bool              `json:"stream"`
	ReturnTokens  bool              `json:"return_token_ids"`
	CacheSalt     string            `json:"cache_salt"` // prefixes are shared under the same one only
	KVTransfer    map[string]string `json:"kv_transfer_params"`
	StreamOptions map[string]bool   `json:"stream_options,omitempty"`
}

// withPlan puts an attempt's plan beside the body.
func (c completion) withPlan(m *enginev1.RequestPlan) (completion, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return c, handoff.Errorf(handoff.CodeInternal, "plan: %s", err)
	}
	c.KVTransfer = map[string]string{"surehand": base64.StdEncoding.EncodeToString(b)}
	return c, nil
}

// piece is what vLLM produced in one event.
type piece struct {
	text   []byte
	tokens uint32
	finish string
}

// server is the vLLM server over HTTP. It keeps no state.
type server struct {
	base, key string
	client    *http.Client
}

func newServer(url, key string, config *tls.Config) *server {
	return &server{base: strings.TrimRight(url, "/"), key: key, client: &http.Client{
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSClientConfig: config,
			MaxIdleConnsPerHost: maxAttempts, IdleConnTimeout: time.Minute, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (s *server) close() { s.client.CloseIdleConnections() }

// send makes one request, which the end of ctx ends at vLLM, too.
func (s *server) send(ctx context.Context, path string, body any) (*http.Response, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInternal, "request: malformed")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, bytes.NewReader(b))
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInternal, "request: malformed")
	}
	r.Header.Set("Content-Type", "application/json")
	if s.key != "" {
		r.Header.Set("Authorization", "Bearer "+s.key)
	}
	if t := tracing.Text(ctx); t != "" {
		r.Header.Set(tracing.Header, t)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, broken(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return nil, refused(resp)
	}
	return resp, nil
}

// broken types a connection that ended: the engine's fault unless ctx says why.
func broken(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var typed *handoff.Error
	if errors.As(err, &typed) {
		return typed
	}
	return handoff.Errorf(handoff.CodeEngine, "vLLM broke off")
}

// refused types a refusal. Its words may quote the prompt: they are not kept.
func refused(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxRefusalBytes))
	code := handoff.CodeEngine
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnprocessableEntity:
		code = handoff.CodeInvalid
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusNotFound:
		code = handoff.CodeDenied
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		code = handoff.CodeCapacity
	}
	return handoff.Errorf(code, "vLLM answers %d", resp.StatusCode)
}

// whole makes a request whose answer does not matter, only its end.
func (s *server) whole(ctx context.Context, c completion) error {
	resp, err := s.send(ctx, pathCompletions, c)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return broken(ctx, err)
	}
	return nil
}

// stream makes a request and calls each with every piece of its answer; the last
// has finish. An error of each ends it.
func (s *server) stream(ctx context.Context, c completion, each func(piece) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // vLLM stops when its reader leaves
	resp, err := s.send(ctx, pathCompletions, c)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxEventBytes)
	for lines.Scan() {
		data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !isData || string(data) == "[DONE]" {
			continue
		}
		p, err := parse(data)
		if err == nil && (p.tokens > 0 || len(p.text) > 0 || p.finish != "") {
			err = each(p)
		}
		if err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return broken(ctx, err)
	}
	return nil
}

func parse(data []byte) (piece, error) {
	var event struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Text   string   `json:"text"`
			Tokens []uint32 `json:"token_ids"`
			Finish string   `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &event); err != nil {
		return piece{}, handoff.Errorf(handoff.CodeEngine, "vLLM's event is malformed")
	}
	if event.Error != nil {
		return piece{}, handoff.Errorf(handoff.CodeEngine, "vLLM ended the request with an error")
	}
	if len(event.Choices) == 0 {
		return piece{}, nil
	}
	c := event.Choices[0]
	switch c.Finish {
	case "", "stop", "length":
		return piece{[]byte(c.Text), uint32(len(c.Tokens)), c.Finish}, nil
	}
	return piece{}, handoff.Errorf(handoff.CodeEngine, "vLLM ended the request: %.16q", c.Finish)
}
