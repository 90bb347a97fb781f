package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehand/surehand/activities/engine/native"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workers/orchestrator"
)

// engines is a Native that lets everybody in.
type engines struct {
	mu      sync.Mutex
	inside  int
	entered int
	said    *vllm.Failure
}

func (e *engines) Enter(context.Context, string) (func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inside++
	e.entered++
	return func() { e.mu.Lock(); defer e.mu.Unlock(); e.inside-- }, nil
}

func (e *engines) Refusal(string) *vllm.Failure { return e.said }

func raws(parts ...string) []orchestrator.Event {
	var out []orchestrator.Event
	for i, p := range parts {
		out = append(out, orchestrator.Event{Position: uint32(i), Tokens: 1, Text: p})
	}
	out[len(out)-1].Finish = "stop"
	return out
}

func serveRaw(t *testing.T, f *front, e *engines, body string, header http.Header) (*http.Response, string) {
	t.Helper()
	g, err := New(Config{Front: f, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Native: e})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if e.inside != 0 {
		t.Errorf("%d are still inside", e.inside)
	}
	return resp, string(text)
}

const rawBody = `{"model":"tiny", "prompt" : "a", "stream":true,"guided_json":{"type": "object"},"max_tokens":9}`

func TestRawBodiesAndAnswersPassAsTheyAre(t *testing.T) {
	f, e := newFront(), &engines{}
	events := raws("data: {\"x\":1}\n\n", "data: [DONE]\n\n")
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) { return events, nil }
	resp, text := serveRaw(t, f, e, rawBody, http.Header{
		"Traceparent": {"00-1"}, "Cookie": {"secret"}, "X-Prefiller-Host-Port": {"127.0.0.1:8100,127.0.0.1:8200"}})
	if resp.StatusCode != 200 || text != "data: {\"x\":1}\n\ndata: [DONE]\n\n" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("%d %q %v", resp.StatusCode, text, resp.Header)
	}
	got := f.submitted[0]
	sent, err := native.Decode(got.Prompt)
	if err != nil || string(sent.Body) != rawBody || sent.Path != "/v1/completions" {
		t.Errorf("%+v %v", sent, err)
	}
	if sent.Header.Get("Traceparent") != "00-1" || sent.Header.Get("Cookie") != "" {
		t.Errorf("forwarded %v", sent.Header)
	}
	if got.Prefill != "127.0.0.1-8100" || got.Sampling.MaxTokens != 9 || got.Model != "tiny" {
		t.Errorf("%+v", got)
	}
}

// Nobody here reads such an engine's tokens: neither what it sampled nor the state of
// its grammar could be rebuilt.
func TestARawAnswerIsNeitherKeptNorResumed(t *testing.T) {
	for header, value := range map[string]string{headerResume: steps.ResumeReplay, headerJournal: "on"} {
		f := newFront()
		resp, text := serveRaw(t, f, &engines{}, rawBody, http.Header{header: {value}})
		if resp.StatusCode != 400 || !strings.Contains(text, "neither kept nor resumed") || len(f.submitted) > 0 {
			t.Errorf("%s: %d %q", header, resp.StatusCode, text)
		}
	}
}

func TestARawAnswerThatIsNoStreamIsJSON(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) { return raws(`{"whole":true}`), nil }
	resp, text := serveRaw(t, f, &engines{}, `{"model":"tiny","prompt":"a"}`, nil)
	if text != `{"whole":true}` || resp.Header.Get("Content-Type") != "application/json" || f.submitted[0].Sampling.MaxTokens != native.DefaultGrowth {
		t.Errorf("%q %v", text, resp.Header)
	}
}

func TestABrokenRawStreamEndsWithATypedEvent(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Tokens: 1, Text: "data: {}\n\n"}, {Err: handoff.Errorf(handoff.CodeStreamBroken, "after position 1")}}, nil
	}
	resp, text := serveRaw(t, f, &engines{}, rawBody, nil)
	if resp.StatusCode != 200 || !strings.Contains(text, `"code":"stream_broken"`) || !strings.Contains(text, `"position":1`) || strings.Contains(text, "[DONE]") {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
}

func TestAnEnginesOwnRefusalReachesItsClient(t *testing.T) {
	f, e := newFront(), &engines{said: &vllm.Failure{Status: 422, Body: []byte(`{"error":{"message":"your prompt"}}`)}}
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Err: handoff.Errorf(handoff.CodeInvalid, "P answered HTTP 422")}}, nil
	}
	if resp, text := serveRaw(t, f, e, rawBody, nil); resp.StatusCode != 422 || !strings.Contains(text, "your prompt") {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Err: handoff.Errorf(handoff.CodeNotValidated, "counters rose")}}, nil
	}
	if resp, text := serveRaw(t, f, e, rawBody, nil); resp.StatusCode != 503 || !strings.Contains(text, `"code":"not_validated"`) {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
}

func TestARequestWhoseDIsFullWaitsAgain(t *testing.T) {
	f, e := newFront(), &engines{}
	tries := 0
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		if tries++; tries < 3 {
			return []orchestrator.Event{{Err: handoff.Errorf(handoff.CodeCapacity, "full")}}, nil
		}
		return raws("data: [DONE]\n\n"), nil
	}
	if resp, _ := serveRaw(t, f, e, rawBody, nil); resp.StatusCode != 200 || e.entered != 3 {
		t.Errorf("%d after %d", resp.StatusCode, e.entered)
	}
	tries = -100
	if resp, text := serveRaw(t, f, e, rawBody, nil); resp.StatusCode != 429 || !strings.Contains(text, `"code":"capacity"`) || e.entered != 3+1+requeues {
		t.Errorf("%d after %d", resp.StatusCode, e.entered)
	}
}

func TestWhatCannotBeHandedOffRawIsRefusedAtOnce(t *testing.T) {
	f, e := newFront(), &engines{}
	for body, status := range map[string]int{
		`{"model":"tiny","prompt":["a","b"]}`:                   400,
		`{"model":"tiny","prompt":"a","n":2}`:                   400,
		`{"model":"tiny","prompt":"a","max_tokens":99999}`:      400,
		`{"model":"tiny","prompt":"a","kv_transfer_params":{}}`: 403,
		`{"model":"nosuch","prompt":"a"}`:                       404,
		`{"model":"tiny","prompt":"a","model":"tiny"}`:          400,
	} {
		if resp, text := serveRaw(t, f, e, body, nil); resp.StatusCode != status {
			t.Errorf("%s: %d %q", body, resp.StatusCode, text)
		}
	}
	if len(f.submitted) != 0 {
		t.Errorf("%d were submitted", len(f.submitted))
	}
}
