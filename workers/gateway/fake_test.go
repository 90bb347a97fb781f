package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/engine"
	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// front is a Front whose streams are what the test says.
type front struct {
	mu        sync.Mutex
	submitted []orchestrator.Request
	began     chan string // ids of handoffs submitted
	closed    chan string // ids of followers closed
	script    func(orchestrator.Request) ([]orchestrator.Event, error)
	hold      chan struct{} // not nil: a stream waits here after its events
	ready     error
	tokenize  error
	models    []orchestrator.Model
	looks     int
	handoffs  map[string]*submitv1.Handoff
	before    bool
	planned   []*submitv1.PlannedRequest
	ended     []*submitv1.EndedRequest
}

func newFront() *front {
	return &front{
		began: make(chan string, 64), closed: make(chan string, 64),
		models: []orchestrator.Model{{Name: "tiny", Revision: "r1", MaxTokens: 4096}},
		script: func(orchestrator.Request) ([]orchestrator.Event, error) {
			return pieces("Hello", ", ", "world"), nil
		},
	}
}

// pieces is a whole stream of the given pieces.
func pieces(texts ...string) []orchestrator.Event {
	var out []orchestrator.Event
	var position uint32
	for _, p := range texts {
		out = append(out, orchestrator.Event{Position: position, Tokens: uint32(len(p)), Text: p})
		position += uint32(len(p))
	}
	return append(out, orchestrator.Event{Position: position, Finish: "stop",
		Usage: orchestrator.Usage{Prompt: 10, Completion: position, Direct: 6, Cached: 3, Recomputed: 1}})
}

type follower struct {
	f      *front
	id     string
	events []orchestrator.Event
	joined bool
	once   sync.Once
}

func (f *follower) Handoff() string { return f.id }
func (f *follower) Joined() bool    { return f.joined }
func (f *follower) Close()          { f.once.Do(func() { f.f.closed <- f.id }) }
func (f *follower) Next(ctx context.Context) (orchestrator.Event, error) {
	if len(f.events) > 0 {
		e := f.events[0]
		f.events = f.events[1:]
		return e, nil
	}
	if f.f.hold == nil {
		return orchestrator.Event{}, io.EOF
	}
	select {
	case <-ctx.Done():
		return orchestrator.Event{}, ctx.Err()
	case <-f.f.hold:
		return orchestrator.Event{Finish: "stop"}, nil
	}
}

func (f *front) Submit(_ context.Context, r orchestrator.Request) (orchestrator.Follower, error) {
	f.mu.Lock()
	f.submitted = append(f.submitted, r)
	f.mu.Unlock()
	events, err := f.script(r)
	if err != nil {
		return nil, err
	}
	f.began <- "h-1"
	return &follower{f: f, id: "h-1", events: events, joined: r.Key == "again"}, nil
}

func (f *front) Attach(_ context.Context, tenant, id string, from orchestrator.From) (orchestrator.Attached, error) {
	if id != "h-1" || tenant == "red" {
		return orchestrator.Attached{}, handoff.Errorf(handoff.CodeGone, "no such handoff")
	}
	var events []orchestrator.Event
	for _, e := range pieces("Hello", ", ", "world") {
		if e.Position >= from.Position {
			e.Epoch = 1
			events = append(events, e)
		}
	}
	return orchestrator.Attached{Follower: &follower{f: f, id: id, events: events}, Model: "tiny", Kind: "chat", Created: 7}, nil
}

func (f *front) Follow(_ context.Context, _, id string) (orchestrator.Follower, error) {
	if id != "h-1" {
		return nil, handoff.Errorf(handoff.CodeGone, "no such stream here")
	}
	return &follower{f: f, id: id, events: pieces("abc")}, nil
}

func (f *front) Get(_ context.Context, _, id string) (*submitv1.Handoff, error) {
	if h, ok := f.handoffs[id]; ok {
		return h, nil
	}
	return nil, handoff.Errorf(handoff.CodeGone, "no such handoff")
}

func (f *front) Cancel(context.Context, string, string) (bool, error) { return f.before, nil }

func (f *front) List(_ context.Context, _, status string, limit int) ([]*submitv1.Handoff, error) {
	var out []*submitv1.Handoff
	for _, h := range f.handoffs {
		if len(out) < limit && (status == "" || h.Status == status) {
			out = append(out, h)
		}
	}
	return out, nil
}

func (f *front) Models(context.Context) ([]orchestrator.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	return f.models, nil
}

// Tokenize has a token for every four bytes, and a template that is easy to see.
func (f *front) Tokenize(_ context.Context, _ orchestrator.Model, t engine.Text) (engine.Tokenized, error) {
	prompt := t.Prompt
	for _, m := range t.Messages {
		prompt = append(prompt, "<"+m.Role+">"+m.Content...)
	}
	return engine.Tokenized{Prompt: prompt, Tokens: uint32(len(prompt)+3) / 4}, f.tokenize
}

func (f *front) Ready(context.Context) error { return f.ready }

func (f *front) GiveUp(_ context.Context, r handoff.Reader, _ handoff.Attempt) (bool, error) {
	return r.Process == "me", nil
}

func (f *front) Planned(_ context.Context, r *submitv1.PlannedRequest) error {
	f.planned = append(f.planned, r)
	return nil
}

func (f *front) Ended(_ context.Context, r *submitv1.EndedRequest) error {
	f.ended = append(f.ended, r)
	return nil
}

func (f *front) last(t *testing.T) orchestrator.Request {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.submitted) == 0 {
		t.Fatal("nothing was submitted")
	}
	return f.submitted[len(f.submitted)-1]
}

func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.submitted)
}

// running is a gateway on free ports, drained at the test's end.
type running struct {
	*Running
	http, grpc string
	client     *http.Client
	drain      func() error // once
}

func serve(t *testing.T, f *front, change ...func(*Config)) *running {
	t.Helper()
	c := Config{Front: f, Reader: f, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Grace: 5 * time.Second}
	for _, by := range change {
		by(&c)
	}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0"}.Open()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	r := &running{http: l.HTTP(), grpc: l.GRPC(), client: &http.Client{Transport: asDescribed{t, transport}}, Running: g.Serve(l)}
	r.drain = sync.OnceValue(r.Drain)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := r.drain(); err != nil {
			t.Error("drain:", err)
		}
	})
	return r
}

// post sends a JSON body; headers are name, value pairs.
func (r *running) post(t *testing.T, path, body string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func all(t *testing.T, res *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// within waits for something that must come.
func within[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s within 10 s", what)
		panic("unreachable")
	}
}
