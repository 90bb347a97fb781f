package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Attach streams a handoff that was submitted before; lastID is where its client
// stopped, empty for the beginning.
func (c *Client) Attach(ctx context.Context, handoff, lastID string) Answer {
	return c.AttachWhile(ctx, handoff, lastID, nil)
}

// AttachWhile is Attach with a call after each piece.
func (c *Client) AttachWhile(ctx context.Context, handoff, lastID string, onPiece func(int)) (out Answer) {
	began := time.Now()
	defer func() { out.Total = time.Since(began) }()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+"/v1/handoffs/"+handoff+"/events?include_usage=true", nil)
	if err != nil {
		out.Broken = err
		return out
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		out.Broken = err
		return out
	}
	defer resp.Body.Close()
	out.Status, out.Handoff = resp.StatusCode, handoff
	if resp.StatusCode != http.StatusOK {
		out.refused(io.LimitReader(resp.Body, maxErrorBytes))
		return out
	}
	out.stream(io.LimitReader(resp.Body, maxAnswerBytes), began, onPiece)
	return out
}

// Response is the part of OpenAI's response object that is looked at.
type Response struct {
	ID, Status, Text string
	Failed           string // why there is none; empty: there is one
}

// Background asks for a response that is fetched later.
func (c *Client) Background(ctx context.Context, model, prompt string, tokens int) Response {
	text, err := json.Marshal(map[string]any{"model": model, "input": prompt, "background": true, "max_output_tokens": tokens, "temperature": 0})
	if err != nil {
		return Response{Failed: err.Error()}
	}
	return c.response(ctx, http.MethodPost, "/v1/responses", string(text))
}

// Response fetches it.
func (c *Client) Response(ctx context.Context, id string) Response {
	return c.response(ctx, http.MethodGet, "/v1/responses/"+id, "")
}

// CancelResponse ends it.
func (c *Client) CancelResponse(ctx context.Context, id string) Response {
	return c.response(ctx, http.MethodPost, "/v1/responses/"+id+"/cancel", "")
}

func (c *Client) response(ctx context.Context, method, path, body string) (out Response) {
	r, err := http.NewRequestWithContext(ctx, method, c.Base+path, strings.NewReader(body))
	if err != nil {
		return Response{Failed: err.Error()}
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		return Response{Failed: err.Error()}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil || resp.StatusCode != http.StatusOK {
		return Response{Failed: fmt.Sprintf("%d %v: %s", resp.StatusCode, err, raw)}
	}
	var said struct {
		ID, Status string
		Output     []struct {
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return Response{Failed: err.Error()}
	}
	out = Response{ID: said.ID, Status: said.Status}
	for _, o := range said.Output {
		for _, part := range o.Content {
			out.Text += part.Text
		}
	}
	return out
}
