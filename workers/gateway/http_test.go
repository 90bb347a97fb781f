package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
)

// sse splits a whole stream into its data lines and checks its form.
func sse(t *testing.T, body string) []string {
	t.Helper()
	var out []string
	for _, event := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("not an event: %q", event)
		}
		out = append(out, data)
	}
	return out
}

type object struct {
	ID, Object, Model string
	Choices           []struct {
		Text         string
		Delta        struct{ Role, Content string }
		Message      struct{ Role, Content string }
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    struct {
			Cached     int `json:"cached_tokens"`
			Direct     int `json:"direct_tokens"`
			Recomputed int `json:"recomputed_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct {
		Message, Type, Code, Handoff string
		Param                        *string
		Position                     *uint32
	}
}

func read(t *testing.T, text string) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

func TestACompletionIsOneObjectWithItsUsage(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","max_tokens":20,"temperature":0.5,"top_p":0.9,"seed":7,"stop":["x","y"]}`,
		"X-Request-Id", "mine", "Idempotency-Key", "again", headerPrefill, "p1", headerDecode, "d2", headerDeadline, "1500", headerTenant, "blue")
	o := read(t, all(t, res))
	if res.StatusCode != 200 || o.Object != "text_completion" || o.ID != "cmpl-h-1" || o.Choices[0].Text != "Hello, world" || *o.Choices[0].FinishReason != "stop" {
		t.Fatalf("%d %+v", res.StatusCode, o)
	}
	if u := o.Usage; u.Prompt != 10 || u.Completion != 12 || u.Total != 22 || u.Details.Cached != 3 || u.Details.Direct != 6 || u.Details.Recomputed != 1 {
		t.Fatalf("%+v", u)
	}
	for name, want := range map[string]string{"X-Request-Id": "mine", headerHandoff: "h-1", headerJoined: "true"} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	q := f.last(t)
	s := q.Sampling
	if q.Tenant != "blue" || q.Key != "again" || q.Prefill != "p1" || q.Decode != "d2" || q.Deadline.Milliseconds() != 1500 || string(q.Prompt) != "Hi" ||
		s.MaxTokens != 20 || s.Temperature != 0.5 || s.TopP != 0.9 || s.Seed != 7 || strings.Join(s.Stop, "") != "xy" || q.Body.IsZero() {
		t.Fatalf("%+v", q)
	}
	if id := within(t, f.closed, "close"); id != "h-1" {
		t.Fatal(id)
	}
}

func TestAStreamEndsInDone(t *testing.T) {
	r := serve(t, newFront())
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","stream":true}`)
	events := sse(t, all(t, res))
	if res.Header.Get("Content-Type") != "text/event-stream" || events[len(events)-1] != "[DONE]" {
		t.Fatal(res.Header, events)
	}
	text, finish := "", ""
	for _, e := range events[:len(events)-1] {
		o := read(t, e)
		if o.Usage != nil {
			t.Error("usage was not asked for")
		}
		text += o.Choices[0].Text
		if o.Choices[0].FinishReason != nil {
			finish += *o.Choices[0].FinishReason
		}
	}
	if text != "Hello, world" || finish != "stop" {
		t.Fatal(text, finish)
	}
}

func TestAChatStreamBeginsWithItsRoleAndEndsWithUsage(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	res := r.post(t, "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}],
		"max_completion_tokens":5,"stream":true,"stream_options":{"include_usage":true},"n":1,"tools":[],"response_format":{"type": "text"},"logprobs":null}`)
	events := sse(t, all(t, res))
	first, usage := read(t, events[0]), read(t, events[len(events)-2])
	if first.Object != "chat.completion.chunk" || first.Choices[0].Delta.Role != "assistant" || !strings.HasPrefix(first.ID, "chatcmpl-") {
		t.Fatalf("%+v", first)
	}
	if len(usage.Choices) != 0 || usage.Usage.Total != 22 {
		t.Fatalf("%+v", usage)
	}
	if !strings.Contains(events[1], `"usage":null`) {
		t.Error("with include_usage every piece says that its usage is null")
	}
	text := ""
	for _, e := range events[:len(events)-2] {
		text += read(t, e).Choices[0].Delta.Content
	}
	if text != "Hello, world" || string(f.last(t).Prompt) != "Hi" || f.last(t).Sampling.MaxTokens != 5 {
		t.Fatal(text, f.last(t))
	}
}

func TestAChatIsOneObjectToo(t *testing.T) {
	r := serve(t, newFront())
	o := read(t, all(t, r.post(t, "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"Hi"}]}`)))
	if o.Object != "chat.completion" || o.Choices[0].Message.Content != "Hello, world" || o.Choices[0].Message.Role != "assistant" {
		t.Fatalf("%+v", o)
	}
}

func TestAnErrorBeforeTheFirstTokenIsAStatus(t *testing.T) {
	for code, want := range map[handoff.Code]int{
		handoff.CodeCapacity: 429, handoff.CodeUnavailable: 503, handoff.CodeKeyReused: 409, handoff.CodeInvalid: 400,
		handoff.CodeTooLarge: 413, handoff.CodeDeadline: 504, handoff.CodeEngine: 502, handoff.CodeOutcomeUnknown: 500,
	} {
		for _, when := range []string{"at submit", "as first event"} {
			f := newFront()
			refused := handoff.Errorf(code, "because")
			f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
				if when == "at submit" {
					return nil, refused
				}
				return []orchestrator.Event{{Err: refused}}, nil
			}
			r := serve(t, f)
			for _, stream := range []string{"true", "false"} {
				res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","stream":`+stream+`}`)
				e := read(t, all(t, res)).Error
				if res.StatusCode != want || e == nil || e.Code != code.String() || e.Message != "because" || e.Type == "" || e.Param != nil {
					t.Errorf("%s %s: %d %+v", code, when, res.StatusCode, e)
				}
				if (want == 429 || want == 503) != (res.Header.Get("Retry-After") != "") {
					t.Errorf("%s: Retry-After %q", code, res.Header.Get("Retry-After"))
				}
			}
		}
	}
}

func TestABusyGatewaySaysWhenToComeAgain(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return nil, &orchestrator.Busy{Cause: handoff.Errorf(handoff.CodeCapacity, "16 starts"), After: 6100 * time.Millisecond}
	}
	res := serve(t, f).post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`)
	if e := read(t, all(t, res)).Error; res.StatusCode != 429 || e == nil || e.Code != "capacity" || res.Header.Get("Retry-After") != "7" {
		t.Fatal(res.StatusCode, e, res.Header)
	}
}

func TestEveryCodeHasAStatus(t *testing.T) {
	for _, code := range handoff.Codes() {
		if _, ok := httpStatus[code]; !ok {
			t.Errorf("%s has none", code)
		}
	}
}

func TestAnErrorAfterTheFirstTokenIsTheLastEvent(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Text: "Hel", Tokens: 3}, {Err: handoff.Errorf(handoff.CodeStreamBroken, "D died")}}, nil
	}
	r := serve(t, f)
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","stream":true}`)
	events := sse(t, all(t, res))
	e := read(t, events[len(events)-1]).Error
	if res.StatusCode != 200 || e == nil || e.Code != "stream_broken" || e.Handoff != "h-1" || e.Position == nil || *e.Position != 3 {
		t.Fatalf("%d %v", res.StatusCode, events)
	}
}

func TestAStreamThatJustStopsEndsInAnError(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Text: "Hel", Tokens: 3}}, nil // and then io.EOF
	}
	r := serve(t, f)
	events := sse(t, all(t, r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","stream":true}`)))
	if e := read(t, events[len(events)-1]).Error; e == nil || e.Code != "internal" {
		t.Fatal(events)
	}
}

func TestAClientThatLeavesClosesItsFollower(t *testing.T) {
	for _, stream := range []string{"true", "false"} {
		f := newFront()
		f.hold = make(chan struct{})
		f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
			return []orchestrator.Event{{Text: "Hel", Tokens: 3}}, nil
		}
		r := serve(t, f)
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.http+"/v1/completions", strings.NewReader(`{"model":"tiny","prompt":"Hi","stream":`+stream+`}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if stream == "false" {
			go func() {
				<-f.began
				leave()
			}()
			if res, err := r.client.Do(req); !errors.Is(err, context.Canceled) {
				t.Fatal(res, err)
			}
		} else {
			res, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			leave()
			res.Body.Close()
		}
		within(t, f.closed, "close")
	}
}

func TestModelsAreListedAndFound(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	for path, want := range map[string]string{
		"/v1/models":         `{"object":"list","data":[{"id":"tiny","object":"model","created":0,"owned_by":"surehand","revision":"r1","max_model_len":4096}]}`,
		"/v1/models/tiny":    `{"id":"tiny","object":"model","created":0,"owned_by":"surehand","revision":"r1","max_model_len":4096}`,
		"/v1/models/missing": `{"error":{"message":"the model \"missing\" is not served here; GET /v1/models lists those that are","type":"invalid_request_error","param":"model","code":"model_not_found"}}`,
		"/healthz":           `{"status":"ok"}`,
		"/readyz":            `{"status":"ready"}`,
	} {
		res, err := r.client.Get("http://" + r.http + path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(all(t, res)); got != want {
			t.Errorf("%s: %s", path, got)
		}
		res.Body.Close()
	}
}

func TestAKnownModelCostsNoLookUp(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	for range 5 {
		all(t, r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`))
	}
	if f.looks != 1 {
		t.Fatal(f.looks)
	}
}

func TestMetricsCountByCodeAndPath(t *testing.T) {
	r := serve(t, newFront())
	all(t, r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`))
	all(t, r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi","n":2}`))
	res, err := r.client.Get("http://" + r.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body := all(t, res)
	for _, want := range []string{
		`surehand_gateway_requests_total{code="ok",surface="http-text"} 1`,
		`surehand_gateway_requests_total{code="invalid",surface="http-text"} 1`,
		`surehand_gateway_prompt_tokens_total{path="direct"} 6`,
		`surehand_gateway_completion_tokens_total 12`,
		`surehand_gateway_first_token_seconds_count{surface="http-text"} 1`,
		`surehand_gateway_streams_open 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("missing %s", want)
		}
	}
}
