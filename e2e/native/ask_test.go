package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/surehand/surehand/contracts/steps"
)

func (w *world) get(path string) int {
	resp, err := http.Get(w.http + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// asked is one request and what has come of it.
type asked struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	status  int
	handoff string
	text    string
	err     error
}

const (
	streamed = `{"model":"fake","prompt":"abc","max_tokens":4,"stream":true}`
	wholly   = `{"model":"fake","prompt":"abc","max_tokens":4}`
)

func (w *world) ask(body string, header ...string) *asked {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.http+"/v1/completions", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a := &asked{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			a.set(func() { a.err = err })
			return
		}
		defer resp.Body.Close()
		a.set(func() { a.status, a.handoff = resp.StatusCode, resp.Header.Get("X-Surehand-Handoff") })
		buf := make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			a.set(func() { a.text += string(buf[:n]) })
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				a.set(func() { a.err = err })
				return
			}
		}
	}()
	return a
}

// comesAgain asks under a key as clients do: again while it is told 503.
func (w *world) comesAgain(body, key string) (a *asked) {
	w.t.Helper()
	w.eventually("the key is answered", func() bool {
		a = w.ask(body, "Idempotency-Key", key)
		<-a.done
		return a.status != http.StatusServiceUnavailable
	})
	return a
}

func (a *asked) set(f func()) { a.mu.Lock(); defer a.mu.Unlock(); f() }

func (a *asked) got() string { a.mu.Lock(); defer a.mu.Unlock(); return a.text }

// whole waits for the end and checks that it is the right answer, once.
func (w *world) whole(a *asked) {
	w.t.Helper()
	<-a.done
	if a.err != nil || a.status != 200 || strings.Contains(a.text, "stale") || strings.Count(a.text, " w0") != 1 || strings.Count(a.text, " w3") != 1 {
		w.t.Errorf("%d %q %v", a.status, a.text, a.err)
	}
}

// refused waits for the end and gives the code of the typed error.
func (w *world) refused(a *asked) string {
	w.t.Helper()
	<-a.done
	text := a.text
	if i := strings.LastIndex(text, "data: "); i >= 0 {
		text = text[i+len("data: "):]
	}
	var body struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil || strings.Contains(a.text, "stale") {
		w.t.Errorf("%d %q: %v", a.status, a.text, err)
	}
	return body.Error.Code
}

// running is how many handoffs of this world are in Temporal and not over.
func (w *world) running() int {
	w.t.Helper()
	list, err := w.temp.ListWorkflow(w.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("TaskQueue = %q AND ExecutionStatus = 'Running'", w.queue)})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(list.GetExecutions())
}

// history waits for the outcome that the history has of a handoff.
func (w *world) history(id string) steps.Outcome {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	var out steps.Outcome
	err := w.temp.GetWorkflow(ctx, "default/"+id, "").Get(ctx, &out)
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.HasDetails() {
		err = app.Details(&out)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// metric reads one value of serve's own metrics; empty: not there.
func (w *world) metric(name string) string {
	resp, err := http.Get(w.http + "/metrics")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
		if rest, ok := strings.CutPrefix(line, name+"{"); ok {
			return strings.TrimSpace(rest[strings.LastIndex(rest, "}")+1:])
		}
	}
	return ""
}
