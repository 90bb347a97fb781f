package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
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
	for _, bad := range []string{`{"model":"tiny"}`, `{"model":"tiny","input":""}`, `{"model":"tiny","input":"x","stream":"yes"}`, `{"model":"tiny","input":"x","tools":[{}]}`,
		`{"model":"tiny","input":[{"role":"robot","content":"x"}]}`, `{"model":"tiny","input":[{"type":"function_call"}]}`, `{"model":"tiny","prompt":"x"}`, `{"model":"tiny","input":"x","previous_response_id":"resp_1"}`} {
		if res := r.post(t, "/v1/responses", bad); res.StatusCode != 400 {
			t.Errorf("%s: %d", bad, res.StatusCode)
		}
	}
}

// eventsOf reads a response's events and holds them against OpenAI's framing.
func eventsOf(t *testing.T, res *http.Response, status int) (kinds []string, seqs []int64, text string, last response) {
	t.Helper()
	body := all(t, res)
	if res.StatusCode != status || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s: %s", res.StatusCode, res.Header.Get("Content-Type"), body)
	}
	for _, block := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(block, "\n")
		var e struct {
			Type     string
			Sequence int64 `json:"sequence_number"`
			Delta    string
			Text     *string
			Response *response
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &e); err != nil || "event: "+e.Type != name {
			t.Fatalf("%q: %v", block, err)
		}
		if n := len(seqs); n > 0 && e.Sequence <= seqs[n-1] {
			t.Errorf("event %d follows %d", e.Sequence, seqs[n-1])
		}
		kinds, seqs, text = append(kinds, e.Type), append(seqs, e.Sequence), text+e.Delta
		if e.Text != nil && text != "" && !strings.HasSuffix(*e.Text, text) {
			t.Errorf("done with %q, streamed %q", *e.Text, text)
		}
		if e.Response != nil {
			last = *e.Response
		}
	}
	return kinds, seqs, text, last
}

const deltaEvent = "response.output_text.delta"

var wholeResponse = []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", deltaEvent, deltaEvent, deltaEvent,
	"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"}

func TestAResponseIsStreamedInOpenAIsEvents(t *testing.T) {
	r := serve(t, newFront())
	for _, body := range []string{`{"model":"tiny","input":"Hi","stream":true}`, `{"model":"tiny","input":"Hi","stream":true,"background":true}`} {
		kinds, _, text, last := eventsOf(t, r.post(t, "/v1/responses", body), 200)
		if !slices.Equal(kinds, wholeResponse) || text != "Hello, world" {
			t.Errorf("%s: %v %q", body, kinds, text)
		}
		if last.Status != responseCompleted || last.Output[0].Content[0].Text != text || last.Usage.Total != 22 {
			t.Errorf("%s: it ends with %+v", body, &last)
		}
	}
}

// Whoever says which event it saw last gets just those behind it, wherever it stopped.
func TestAStreamedResponseGoesOnBehindAnyEvent(t *testing.T) {
	r := serve(t, newFront())
	const path = "/v1/responses/resp_h-1?stream=true"
	kinds, seqs, whole, _ := eventsOf(t, r.get(t, path), 200)
	if !slices.Equal(kinds, wholeResponse) {
		t.Fatal(kinds)
	}
	for i, seq := range seqs[:len(seqs)-1] {
		rest, numbers, text, last := eventsOf(t, r.get(t, path+"&starting_after="+strconv.FormatInt(seq, 10)), 200)
		if !slices.Equal(rest, kinds[i+1:]) || !slices.Equal(numbers, seqs[i+1:]) || !strings.HasSuffix(whole, text) || last.Output[0].Content[0].Text != whole {
			t.Errorf("behind %s: %v %v %q", kinds[i], rest, numbers, text)
		}
	}
	for _, bad := range []string{"?stream=yes", "?stream=true&starting_after=x", "?stream=true&starting_after=-1", "?starting_after=3"} {
		if res := r.get(t, "/v1/responses/resp_h-1"+bad); res.StatusCode != 400 {
			t.Errorf("%s: %d", bad, res.StatusCode)
		}
	}
	if res := r.get(t, "/v1/responses/resp_h-9?stream=true"); res.StatusCode != 404 {
		t.Error(res.StatusCode)
	}
}

// What fails before any token is a status, unless the response is one of the
// background, which is there; what fails after it is an event that says so.
func TestAStreamedResponseThatFailsSaysSo(t *testing.T) {
	f := newFront()
	full := handoff.Errorf(handoff.CodeCapacity, "full")
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return []orchestrator.Event{{Err: full}}, nil
	}
	r := serve(t, f)
	if res := r.post(t, "/v1/responses", `{"model":"tiny","input":"Hi","stream":true}`); res.StatusCode != 429 {
		t.Error(res.StatusCode)
	}
	f.script = func(orchestrator.Request) ([]orchestrator.Event, error) {
		return append(pieces("Hel")[:1], orchestrator.Event{Position: 3, Resumed: &steps.Resumed{From: 1, Position: 3}, Epoch: 2}, orchestrator.Event{Err: full}), nil
	}
	kinds, _, text, last := eventsOf(t, r.post(t, "/v1/responses", `{"model":"tiny","input":"Hi","stream":true}`), 200)
	if text != "Hel" || kinds[len(kinds)-1] != "response.failed" || !slices.Contains(kinds, "surehand.resumed") || last.Status != responseFailed || last.Error.Code == "" {
		t.Errorf("%v %q %+v", kinds, text, &last)
	}
}
