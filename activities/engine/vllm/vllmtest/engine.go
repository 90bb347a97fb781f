package vllmtest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Options of one engine. Zero values are those of a healthy one.
type Options struct {
	Model, Root, Version string // fake, fake@r1, 0.32.0
	Push                 bool   // transfer_mode push
	Mooncake             bool   // P answers no parameters; see Bootstrap
	Lease                time.Duration
	Blocks, BlockTokens  int  // 0 blocks: the metric is missing
	Context              int  // tokens; 4096
	MaxRunning           int  // 0: no bound
	RejectOver           bool // 503 past MaxRunning instead of queueing
	NoCounters           bool // the expiry counters are missing
}

// Engine is one server, P or D by what it is asked. Kill and Start change its
// life on the same port.
type Engine struct {
	t       testing.TB
	net     *Network
	address string
	options Options

	mu     sync.Mutex
	server *http.Server
	closed chan struct{}
	began  time.Time
	life   int
	queue  chan struct{}

	held    map[int]time.Time // leases of P
	next    int
	expired int // counted lapses
	late    int // fetches after expiry
	// cached is D's prefix cache: whose tokens it answers a prompt with, by salt
	// and prompt. It keeps a stale fetch as it keeps a good one.
	cached map[string]string
	// met is which life of a P this D has fetched from. What it has to tell another
	// one waits in unsaid for the engine's next step: the handshake comes first.
	met    map[*Engine]int
	unsaid []func()

	// Faults and gates, guarded by mu; set them with Set.
	faults Faults
	seen   Seen
}

// Faults are set while the engine runs.
type Faults struct {
	NoParams      bool
	PrefillStatus int // P answers this
	DecodeStatus  int // D answers this
	ErrorEvent    bool
	MaxLogprobs   int           // that D permits; 0: any number
	EventStatus   int           // D's stream is one error event with this code, as vLLM answers what it finds wrong late
	Truncate      int           // D ends its stream after so many tokens, without [DONE]
	PrefillGate   chan struct{} // P waits for it to close, before it pins
	AnswerGate    chan struct{} // P waits for it to close, after it pinned
	AnswerDelay   time.Duration // of P, after it pinned
	TokenGate     chan struct{} // D waits for it before its first token
	RestGate      chan struct{} // D waits for it after its first token
	MetricsStatus int
	Waiting       int // told by metrics on top of the truth
	Usage         float64
}

// Seen is what the engine was asked.
type Seen struct {
	Prefills, Decodes, Aborted, Rejected, Released, Locals int
	Bodies                                                 [][]byte
	RequestIDs, Traces                                     []string
}

// Network is the engines that can fetch from each other.
type Network struct {
	mu      sync.Mutex
	engines map[string]*Engine
}

// NewNetwork makes an empty one.
func NewNetwork() *Network { return &Network{engines: map[string]*Engine{}} }

// Start runs an engine until the test ends.
func (n *Network) Start(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.Model == "" {
		o.Model = "fake"
	}
	if o.Root == "" {
		o.Root = "fake@r1"
	}
	if o.Version == "" {
		o.Version = "0.32.0"
	}
	if o.Lease == 0 {
		o.Lease = time.Hour
	}
	if o.Context == 0 {
		o.Context = 4096
	}
	e := &Engine{t: t, net: n, options: o, held: map[int]time.Time{}, cached: map[string]string{}, met: map[*Engine]int{}}
	if o.MaxRunning > 0 {
		e.queue = make(chan struct{}, o.MaxRunning)
	}
	e.listen("127.0.0.1:0")
	n.mu.Lock()
	n.engines[e.address] = e
	n.mu.Unlock()
	t.Cleanup(e.Kill)
	return e
}

func (e *Engine) listen(address string) {
	e.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		e.t.Fatal(err)
	}
	e.address = l.Addr().String()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.life++
	e.began = time.Now()
	e.server = &http.Server{Handler: e.handler()}
	e.closed = make(chan struct{})
	go func(s *http.Server, closed chan struct{}) {
		defer close(closed)
		_ = s.Serve(l) // ends with Kill
	}(e.server, e.closed)
}

// URL is where it serves.
func (e *Engine) URL() string { return "http://" + e.address }

// Kill ends it as kill -9 does: connections break, what it held is gone.
func (e *Engine) Kill() {
	e.mu.Lock()
	s, closed := e.server, e.closed
	e.server = nil
	e.held, e.cached, e.met, e.unsaid = map[int]time.Time{}, map[string]string{}, map[*Engine]int{}, nil
	e.mu.Unlock()
	if s == nil {
		return
	}
	_ = s.Close() // connections are cut on purpose
	<-closed
}

// Restart brings another life up on the same port.
func (e *Engine) Restart() {
	e.Kill()
	e.listen(e.address)
}

// Set changes the faults.
func (e *Engine) Set(change func(*Faults)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.faults)
}

// Seen tells what it was asked so far.
func (e *Engine) Seen() Seen {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// Held is how many prompts P pins.
func (e *Engine) Held() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lapse(time.Now())
	return len(e.held)
}

// Lapse ends every lease of P now.
func (e *Engine) Lapse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lapse(time.Now().Add(24 * time.Hour))
}

// Late is how many fetches after their end P has counted.
func (e *Engine) Late() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.late
}

// Rise raises P's expiry counter as another hand-off's lapse does.
func (e *Engine) Rise() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expired++
}

func (e *Engine) lapse(now time.Time) {
	for id, end := range e.held {
		if now.After(end) {
			delete(e.held, id)
			e.expired++
		}
	}
}

func (e *Engine) now() (Faults, Options) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults, e.options
}

func (e *Engine) count(f func(*Seen)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.seen)
}

func (n *Network) find(address string) *Engine {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.engines[address]
}

// pass waits for a gate; false when the client left first.
func pass(ctx context.Context, gate chan struct{}) bool {
	if gate == nil {
		return ctx.Err() == nil
	}
	select {
	case <-gate:
		return true
	case <-ctx.Done():
		return false
	}
}

// delay waits; false when the client left first.
func delay(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
