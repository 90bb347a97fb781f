package traffic

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Ask is one request. The zero value of a field leaves it out.
type Ask struct {
	Model       string
	Prompt      string
	MaxTokens   int
	Chat        bool
	Whole       bool // one JSON answer in place of a stream
	Seed        int
	Temperature float64

	Key, Tenant     string
	APIKey          string // as a bearer token
	Resume          bool   // go on after D's death
	Journal         bool   // keep the answer for a client that comes back
	LastID          string // where it stopped, when it does
	Trace           string // W3C traceparent
	Prefill, Decode string // engines chosen by the caller
	Deadline        time.Duration

	// OnPiece is called after each piece of text, with how many have come. It
	// is where a test strikes in the middle of a stream.
	OnPiece func(pieces int)
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type options struct {
	Usage bool `json:"include_usage"`
}

type body struct {
	Model       string    `json:"model"`
	Prompt      string    `json:"prompt,omitempty"`
	Messages    []message `json:"messages,omitempty"`
	MaxTokens   int       `json:"max_tokens,omitempty"`
	Temperature float64   `json:"temperature"`
	Seed        int       `json:"seed,omitempty"`
	Stream      bool      `json:"stream"`
	Options     *options  `json:"stream_options,omitempty"`
}

func (a Ask) path() string {
	if a.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

func (a Ask) request(ctx context.Context, base string) (*http.Request, error) {
	b := body{Model: a.Model, Temperature: a.Temperature, MaxTokens: a.MaxTokens, Seed: a.Seed, Stream: !a.Whole}
	if a.Chat {
		b.Messages = []message{{"user", a.Prompt}}
	} else {
		b.Prompt = a.Prompt
	}
	if b.Stream {
		b.Options = &options{Usage: true}
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	return newRequest(ctx, base+a.path(), text, a.headers())
}

func (a Ask) headers() map[string]string {
	h := map[string]string{"Idempotency-Key": a.Key, "X-Surehand-Tenant": a.Tenant, "X-Surehand-Prefill": a.Prefill, "X-Surehand-Decode": a.Decode, "traceparent": a.Trace}
	if a.APIKey != "" {
		h["Authorization"] = "Bearer " + a.APIKey
	}
	if a.Resume {
		h["X-Surehand-Resume"] = "replay"
	}
	if a.Journal {
		h["X-Surehand-Journal"] = "on"
	}
	if a.LastID != "" {
		h["Last-Event-ID"] = a.LastID
	}
	if a.Deadline > 0 {
		h["X-Surehand-Deadline-Ms"] = strconv.FormatInt(a.Deadline.Milliseconds(), 10)
	}
	return h
}

func newRequest(ctx context.Context, url string, text []byte, headers map[string]string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return r, nil
}

// Words is a prompt of so many bytes, which the reference engines count as
// tokens, and two more that frame it.
func Words(bytes int) string {
	const text = "the quick brown fox jumps over the lazy dog and runs on "
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}
