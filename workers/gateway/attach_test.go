package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
)

func (r *running) get(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.http+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// Every piece of a journalled stream says where it ends, and that is what a
// client that comes back gives.
func TestAPieceSaysWhereItEnds(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		events := pieces("Hello", ", ", "world")
		for i := range events {
			events[i].Epoch = 2
		}
		return events, nil
	}
	r := serve(t, f)
	const body = `{"model":"tiny","prompt":"Hi","stream":true}`
	got := all(t, r.post(t, "/v1/completions", body, headerJournal, "on"))
	for _, id := range []string{"id: 2-5\ndata: ", "id: 2-7\ndata: ", "id: 2-12\ndata: "} {
		if strings.Count(got, id) != 1 {
			t.Errorf("%q is not there once in %s", id, got)
		}
	}
	if q := f.last(t); !q.Journal || q.Kind != kindText {
		t.Errorf("%+v", q)
	}
	if got := all(t, r.post(t, "/v1/completions", body)); strings.Contains(got, "id: ") || f.last(t).Journal {
		t.Error("a stream that nobody keeps names places: ", got)
	}
	all(t, r.post(t, "/v1/completions", body, headerLast, "2-7", headerKey, "mine"))
	if q := f.last(t); q.From != (orchestrator.From{Epoch: 2, Position: 7}) || !q.Journal {
		t.Errorf("%+v", q)
	}
	for _, bad := range [][]string{{headerLast, "2-7"}, {headerLast, "x", headerKey, "k"}, {headerLast, "0-7", headerKey, "k"}, {headerLast, "7", headerKey, "k"}, {headerJournal, "maybe"}} {
		if res := r.post(t, "/v1/completions", body, bad...); res.StatusCode != 400 {
			t.Errorf("%v: %d", bad, res.StatusCode)
		}
	}
}

func TestAClientThatComesBackGetsTheRestInItsOwnShape(t *testing.T) {
	r := serve(t, newFront())
	res := r.get(t, "/v1/handoffs/h-1/events", headerLast, "1-5")
	got := all(t, res)
	if res.StatusCode != 200 || !strings.Contains(got, `chat.completion.chunk`) || strings.Contains(got, "Hello") || !strings.Contains(got, "id: 1-7\ndata: ") ||
		!strings.HasSuffix(got, "data: [DONE]\n\n") || !strings.Contains(got, `"created":7,"model":"tiny"`) {
		t.Fatal(res.StatusCode, got)
	}
	for path, want := range map[string]int{"/v1/handoffs/h-9/events": 410, "/v1/handoffs/h%201/events": 400} {
		if res := r.get(t, path); res.StatusCode != want {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

func TestAttachStreamsFromAPositionOverGRPC(t *testing.T) {
	client := submitv1.NewSubmitClient(serve(t, newFront()).dial(t))
	stream, err := client.Attach(t.Context(), &submitv1.AttachRequest{Handoff: "h-1", From: 7, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	events, err := follow(stream)
	if err != nil || events[1].GetDelta().GetPosition() != 7 || events[1].GetDelta().GetText() != "world" || events[1].GetDelta().GetEpoch() != 1 {
		t.Fatal(events, err)
	}
	if last := events[len(events)-1].GetFinished(); last.GetPosition() != 12 {
		t.Error(last)
	}
	stream, err = client.Attach(t.Context(), &submitv1.AttachRequest{Handoff: "h-9"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := follow(stream); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// look reads a response.
func look(t *testing.T, res *http.Response, status int) (b response) {
	t.Helper()
	text := all(t, res)
	if res.StatusCode != status {
		t.Fatalf("%d: %s", res.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestABackgroundResponseIsAnsweredAtOnceAndAskedForLater(t *testing.T) {
	f := newFront()
	f.hold = make(chan struct{})
	r := serve(t, f)
	b := look(t, r.post(t, "/v1/responses", `{"model":"tiny","input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]}],"instructions":"Be kind.","background":true}`), 200)
	if b.Status != responseRunning || b.ID != "resp_h-1" || !b.Background || len(b.Output) != 0 {
		t.Fatalf("%+v", &b)
	}
	q := f.last(t)
	if !q.Journal || q.Kind != kindResponse || string(q.Prompt) != "system: Be kind.\nuser: Hi\nassistant:" {
		t.Errorf("%+v", q)
	}
	close(f.hold) // it ends, and its follower with it
	within(t, f.closed, "close")
	got := look(t, r.get(t, "/v1/responses/resp_h-1"), 200)
	if got.Status != responseCompleted || got.Output[0].Content[0].Text != "Hello, world" || got.Usage.Input != 10 || got.Usage.InputDetails.Cached != 3 || got.Usage.Total != 22 {
		t.Fatalf("%+v", &got)
	}
	for path, want := range map[string]int{"/v1/responses/resp_h-9": 404, "/v1/responses/h-1": 404} {
		if res := r.get(t, path); res.StatusCode != want {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

func TestAResponseThatIsWaitedForIsWhole(t *testing.T) {
	f := newFront()
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		e := pieces("Hel")
		e[1].Finish = "length"
		return e, nil
	}
	r := serve(t, f)
	b := look(t, r.post(t, "/v1/responses", `{"model":"tiny","input":"Hi","max_output_tokens":3}`), 200)
	if b.Status != responseIncomplete || b.Incomplete.Reason != "max_output_tokens" || b.Output[0].Content[0].Text != "Hel" {
		t.Fatalf("%+v", &b)
	}
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Err: handoff.Errorf(handoff.CodeCapacity, "full")}}, nil
	}
	if res := r.post(t, "/v1/responses", `{"model":"tiny","input":"Hi"}`); res.StatusCode != 429 {
		t.Error(res.StatusCode)
	}
	for _, bad := range []string{`{"model":"tiny"}`, `{"model":"tiny","input":""}`, `{"model":"tiny","input":"x","stream":true}`, `{"model":"tiny","input":"x","tools":[{}]}`,
		`{"model":"tiny","input":[{"role":"robot","content":"x"}]}`, `{"model":"tiny","input":[{"type":"function_call"}]}`, `{"model":"tiny","prompt":"x"}`, `{"model":"tiny","input":"x","previous_response_id":"resp_1"}`} {
		if res := r.post(t, "/v1/responses", bad); res.StatusCode != 400 {
			t.Errorf("%s: %d", bad, res.StatusCode)
		}
	}
}
