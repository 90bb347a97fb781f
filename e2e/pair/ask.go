package pair

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/surehand/surehand/workers/vllmenv"
)

// Ask is one request for greedy tokens of the tiny model.
type Ask struct {
	Prompt  string
	Tokens  int
	Chat    bool
	Whole   bool           // one JSON answer in place of a stream
	More    map[string]any // further fields of the body
	Header  map[string]string
	OnToken func(got int) // after each token of a stream
}

// Answer is all that a client saw.
type Answer struct {
	Status  int
	Tokens  []int // ids
	Text    string
	Finish  string
	Params  json.RawMessage // of a prefill
	Code    string          // of a typed refusal, as a status or as the last event
	Message string
	Handoff string
	Broken  error // the connection ended without an end
}

// Ended says that the answer has its end.
func (a Answer) Ended() bool {
	return a.Status == http.StatusOK && a.Code == "" && a.Broken == nil && a.Finish != ""
}

func (a Answer) String() string {
	switch {
	case a.Broken != nil:
		return fmt.Sprintf("the connection broke after %d tokens: %v", len(a.Tokens), a.Broken)
	case a.Code != "":
		return fmt.Sprintf("HTTP %d, %d tokens, refused: %s (%s)", a.Status, len(a.Tokens), a.Code, a.Message)
	}
	return fmt.Sprintf("HTTP %d, %s, tokens %v", a.Status, a.Finish, a.Tokens)
}

func (a Ask) body() map[string]any {
	b := map[string]any{"model": vllmenv.Served, "max_tokens": a.Tokens, "temperature": 0, "ignore_eos": true,
		"return_token_ids": true, "stream": !a.Whole}
	if a.Chat {
		b["messages"] = []map[string]string{{"role": "user", "content": a.Prompt}}
	} else {
		b["prompt"] = a.Prompt
	}
	maps.Copy(b, a.More)
	return b
}

// Send asks the server at url and reads the answer to its end. An error is one
// of the request's; what the server did is in the answer.
func (a Ask) Send(ctx context.Context, url string) (Answer, error) {
	body, err := json.Marshal(a.body())
	if err != nil {
		return Answer{}, err
	}
	path := "/v1/completions"
	if a.Chat {
		path = "/v1/chat/completions"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range a.Header {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return Answer{Broken: err}, nil
	}
	defer resp.Body.Close()
	out := Answer{Status: resp.StatusCode, Handoff: resp.Header.Get("X-Surehand-Handoff")}
	if resp.StatusCode != http.StatusOK || a.Whole {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			out.Broken = err
			return out, nil
		}
		return out, out.take(text)
	}
	return out, out.read(resp.Body, a.OnToken)
}

// piece is a whole answer, an event of a stream, or a refusal.
type piece struct {
	Choices []struct {
		IDs    []int  `json:"token_ids"`
		Text   string `json:"text"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Params json.RawMessage `json:"kv_transfer_params"`
	Error  *struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (a *Answer) take(text []byte) error {
	var p piece
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("HTTP %d is no JSON: %q: %w", a.Status, text, err)
	}
	if p.Error != nil {
		a.Code, a.Message = fmt.Sprint(p.Error.Code), p.Error.Message
	}
	if len(p.Params) > 0 && string(p.Params) != "null" {
		a.Params = p.Params
	}
	for _, c := range p.Choices {
		a.Tokens, a.Text = append(a.Tokens, c.IDs...), a.Text+c.Text
		if c.Finish != "" {
			a.Finish = c.Finish
		}
	}
	return nil
}

func (a *Answer) read(stream io.Reader, onToken func(int)) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
			if text == "[DONE]" {
				return nil
			}
			before := len(a.Tokens)
			if err := a.take([]byte(text)); err != nil {
				return err
			}
			if onToken != nil && len(a.Tokens) > before {
				onToken(len(a.Tokens))
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if a.Code == "" {
				a.Broken = io.ErrUnexpectedEOF
			}
			return nil
		case err != nil:
			a.Broken = err
			return nil
		}
	}
}
