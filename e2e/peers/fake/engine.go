package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Kind of server, by how it hands over.
type Kind string

// The two kinds.
const (
	VLLM   Kind = "vllm"
	SGLang Kind = "sglang"
)

// Model is the name that it serves.
const Model = "fake"

// Options of one server.
type Options struct {
	Name, Listen string
	Side         string // P's side channel: D tells here what it fetched, or waits for it
	Kind         Kind
	Revision     string // of the weights, told by /v1/models
	MaxRunning   int    // requests past it are refused with 503; 0: no bound
}

// Pace is how long things take.
type Pace struct {
	PrefillPer1k time.Duration // of prompt tokens, four bytes each
	Step         time.Duration // between two tokens
	Hold         bool          // streams wait after their first token until a pace without it
}

// Seen is what a server was asked.
type Seen struct{ Prefills, Decodes, Locals, Whole, Aborted, Refused int64 }

// Engine is one server.
type Engine struct {
	Options
	pace    atomic.Pointer[Pace]
	running atomic.Int64
	id      atomic.Int64
	seen    struct{ prefills, decodes, locals, whole, aborted, refused atomic.Int64 }
	side    *sides
	held    atomic.Pointer[chan struct{}] // closed when streams go on; nil: none is held

	mu   sync.Mutex
	kept map[int64]bool // P: computed, not fetched
}

// New makes one; Serve runs it.
func New(o Options) *Engine {
	e := &Engine{Options: o, side: newSides(), kept: map[int64]bool{}}
	e.pace.Store(&Pace{})
	return e
}

// Serve answers until the listener closes.
func (e *Engine) Serve(http1, side net.Listener) error {
	if side != nil {
		go e.side.serve(side, e.release)
	}
	return http.Serve(http1, e.handler())
}

// release notes that D fetched, or will not.
func (e *Engine) release(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.kept, id)
}

func (e *Engine) hold() int64 {
	id := e.id.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept[id] = true
	return id
}

// Held is how many prompts P keeps for a fetch.
func (e *Engine) heldNow() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.kept)
}

// Paths of the fake's own, beside an engine's.
const (
	PathPace = "/fake/pace"
	PathSeen = "/fake/seen"
)

func (e *Engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", e.generate)
	for _, p := range []string{"/health", "/health_generate", "/ping"} {
		mux.HandleFunc("GET "+p, func(http.ResponseWriter, *http.Request) {})
	}
	mux.HandleFunc("GET /version", says(`{"version":"0.32.0"}`))
	mux.HandleFunc("GET /v1/models", says(fmt.Sprintf(
		`{"object":"list","data":[{"id":%q,"object":"model","created":1,"owned_by":"fake","root":"%s@%s","parent":null,"max_model_len":131072}]}`, Model, Model, e.Revision)))
	for _, p := range []string{"/get_server_info", "/server_info", "/get_model_info", "/model_info"} {
		mux.HandleFunc("GET "+p, says(fmt.Sprintf(
			`{"model_path":%q,"model_id":%q,"served_model_name":%q,"tokenizer_path":"","weight_version":%q,"is_generation":true,"dp_size":1,"tp_size":1,"version":"0.5.9","max_total_num_tokens":1000000,"internal_states":[{"load":0}]}`,
			Model, Model, Model, e.Revision)))
	}
	mux.HandleFunc("GET /get_load", says(`[{"load":0}]`))
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("POST "+PathPace, e.setPace)
	mux.HandleFunc("GET "+PathSeen, e.tell)
	return mux
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	}
}

func (e *Engine) metrics(w http.ResponseWriter, _ *http.Request) {
	label := fmt.Sprintf("{engine=\"0\",model_name=%q}", Model)
	fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running%s %d\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting%s 0\n# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc%s 0\n# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"4000000\"} 1\n",
		label, e.running.Load(), label, label)
}

func (e *Engine) setPace(w http.ResponseWriter, r *http.Request) {
	var p Pace
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	e.pace.Store(&p)
	if p.Hold {
		gate := make(chan struct{})
		e.held.CompareAndSwap(nil, &gate)
	} else if gate := e.held.Swap(nil); gate != nil {
		close(*gate)
	}
}

// passes waits for the end of a hold; false when the client left first.
func (e *Engine) passes(ctx context.Context) bool {
	gate := e.held.Load()
	if gate == nil {
		return true
	}
	select {
	case <-*gate:
		return true
	case <-ctx.Done():
		return false
	}
}

// Told is what PathSeen answers.
type Told struct {
	Seen
	Held int
}

func (e *Engine) tell(w http.ResponseWriter, _ *http.Request) {
	s := &e.seen
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Told{Seen{s.prefills.Load(), s.decodes.Load(), s.locals.Load(), s.whole.Load(), s.aborted.Load(), s.refused.Load()}, e.heldNow()})
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"message":%q,"type":"Error","param":null,"code":%d}}`, message, status)
}
