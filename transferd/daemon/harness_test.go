package daemon_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// The topology of these tests:
//
//	engine P ── unix socket ── daemon P ── tcp ── daemon D ── unix socket ── engine D
//	                              └──── control ────┘ (the test is the orchestrator)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		os.Exit(beDaemon())
	}
	if sockets := os.Getenv(intruderVariable); sockets != "" {
		os.Exit(beIntruder(strings.Fields(sockets)))
	}
	before := openFiles()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "leaked goroutines:", err)
			code = 1
		}
		if after := openFiles(); len(after) > len(before) {
			fmt.Fprintf(os.Stderr, "leaked descriptors: %d before, %d after: %v\n", len(before), len(after), after)
			code = 99
		}
	}
	os.Exit(code)
}

// openFiles lists what this project opens: sockets, memory and files of its folders.
func openFiles() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	var out []string
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && (strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "/memfd:") || strings.HasPrefix(to, os.TempDir())) {
			out = append(out, to)
		}
	}
	return out
}

const (
	blocks     = 6
	layers     = 2
	blockBytes = 8 << 10
	itemBytes  = 100
	segment    = 4 << 20
	patience   = 10 * time.Second // of a test for what must come
	// shortLease is waited for, by tests that wait beside each other, and still long
	// enough for what is done within it on a machine that has other things to do.
	shortLease = 2 * time.Second
)

var shape = handoff.Shape{Revision: "model@1", Layout: handoff.Digest{7}, Tokens: 90,
	Groups: []handoff.Group{{Name: "full", Layers: layers, Blocks: blocks, BlockBytes: blockBytes}},
	Items:  []handoff.Item{{Class: "sampler", Bytes: itemBytes}}}

func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, codes ...handoff.Code) {
	t.Helper()
	for _, c := range codes {
		if err != nil && handoff.CodeOf(err) == c {
			return
		}
	}
	t.Fatalf("got %v, want %v", err, codes)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// host is one daemon in this process with its folder, which survives restarts.
type host struct {
	*daemon.Daemon
	cfg     daemon.Config
	control *client.Control
}

func startHost(t *testing.T, node handoff.NodeID, change ...func(*daemon.Config)) *host {
	t.Helper()
	dir := t.TempDir()
	cfg := daemon.Config{Node: node, Data: dir, EngineSocket: filepath.Join(dir, "e.sock"), Control: "unix://" + filepath.Join(dir, "c.sock"),
		Peer: "127.0.0.1:0", Lease: handoff.LeaseDefault, ProgressDeadline: patience} // a loud machine is no stalled source
	for _, c := range change {
		c(&cfg)
	}
	h := &host{cfg: cfg}
	h.start(t)
	var err error
	h.control, err = client.Dial(cfg.Control)
	check(t, err)
	t.Cleanup(func() {
		if err := h.control.Close(); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) start(t *testing.T) {
	t.Helper()
	d, err := daemon.Start(h.cfg)
	check(t, err)
	h.Daemon = d
}

// restart ends this life and begins the next on the same peer port.
func (h *host) restart(t *testing.T) {
	t.Helper()
	h.cfg.Peer = h.PeerAddress()
	check(t, h.Close())
	h.start(t)
}

// hasty is for a source that shall be given up.
func hasty(c *daemon.Config) { c.ProgressDeadline = 500 * time.Millisecond }

func lease(d time.Duration) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Lease = d }
}

// engine is a fake engine: memory, an attachment and what it was told.
type engine struct {
	*client.Engine
	id     handoff.EngineID
	memory *client.Memory
	slots  uint32

	mu     sync.Mutex
	events []client.Event
	ended  chan struct{}
	once   sync.Once
}

func attach(t *testing.T, socket string, id handoff.EngineID) *engine {
	t.Helper()
	memory, err := client.NewMemory("segment", segment)
	check(t, err)
	return attachMemory(t, socket, id, memory)
}

func attachMemory(t *testing.T, socket string, id handoff.EngineID, memory *client.Memory) *engine {
	t.Helper()
	return attachSlots(t, socket, id, memory, 16)
}

func attachSlots(t *testing.T, socket string, id handoff.EngineID, memory *client.Memory, slots uint32) *engine {
	t.Helper()
	a, err := client.Attach(background(t), client.EngineConfig{Socket: socket, Engine: id, Revision: shape.Revision, Layout: shape.Layout, Segment: memory, FlagSlots: slots})
	check(t, err)
	e := &engine{Engine: a, id: id, memory: memory, ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		for ev := range a.Events() {
			e.mu.Lock()
			e.events = append(e.events, ev)
			e.mu.Unlock()
		}
	}()
	t.Cleanup(func() { e.die(t) })
	return e
}

// die is the engine's death.
func (e *engine) die(t *testing.T) {
	e.once.Do(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		<-e.ended
		if err := e.memory.Close(); err != nil {
			t.Error(err)
		}
	})
}

// saw counts the events of a kind for an attempt.
func (e *engine) saw(k client.EventKind, a handoff.Attempt) (n int, last client.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.events {
		if ev.Kind == k && (ev.Attempt == a || k == client.Reattached || k == client.Detached) {
			n, last = n+1, ev
		}
	}
	return n, last
}

func (e *engine) await(t *testing.T, k client.EventKind, a handoff.Attempt) client.Event {
	t.Helper()
	var last client.Event
	eventually(t, fmt.Sprintf("%s of %s at %s", k, a, e.id), func() bool {
		var n int
		n, last = e.saw(k, a)
		return n > 0
	})
	return last
}

// move is one handoff in a test: two engines, scattered places, a plan.
type move struct {
	t          *testing.T
	p, d       *engine
	ph, dh     *host
	plan       handoff.Plan
	from, to   []uint64
	slot       uint32
	token      handoff.Token
	capability []byte
}

var numbers struct {
	sync.Mutex
	n int
}

func newMove(t *testing.T, ph *host, p *engine, dh *host, d *engine) *move {
	numbers.Lock()
	numbers.n++
	n := numbers.n
	numbers.Unlock()
	m := &move{t: t, p: p, d: d, ph: ph, dh: dh, slot: uint32(n % 16)}
	m.plan = handoff.Plan{
		Attempt:    handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprintf("h-%d", n)), Epoch: 1, Nonce: handoff.Nonce(rand.Uint64() | 1)},
		P:          handoff.Seat{Engine: p.id, Node: p.Node(), Incarnation: p.Incarnation()},
		D:          handoff.Seat{Engine: d.id, Node: d.Node(), Incarnation: d.Incarnation()},
		Reader:     handoff.Reader{Process: "gateway-1", Incarnation: 1, Number: 1},
		BodyDigest: handoff.Digest{1},
	}
	m.from, m.to = scatter(), scatter()
	for i := range shape.Pieces() {
		b := m.source(i)
		for k := range b {
			b[k] = byte(rand.Uint32())
		}
		clear(m.target(i))
	}
	return m
}

// scatter gives each piece a place of its own, in no order.
func scatter() []uint64 {
	places := rand.Perm(segment / blockBytes)
	out := make([]uint64, shape.Pieces())
	for i := range out {
		out[i] = uint64(places[i]) * blockBytes
	}
	return out
}

func (m *move) view(e *engine, at []uint64, i uint32) []byte {
	p, _ := shape.Place(i)
	return e.memory.Bytes()[at[i] : at[i]+uint64(p.Bytes)]
}
func (m *move) source(i uint32) []byte { return m.view(m.p, m.from, i) }
func (m *move) target(i uint32) []byte { return m.view(m.d, m.to, i) }

func (m *move) openTarget() error {
	var err error
	m.token, err = m.d.OpenTarget(background(m.t), client.TargetSpec{Plan: m.plan, Shape: shape, Offsets: m.to, FlagSlot: m.slot})
	return err
}

func (m *move) openSource() error {
	g, err := m.p.OpenSource(background(m.t), client.SourceSpec{Plan: m.plan, Shape: shape, Offsets: m.from, Blocks: []uint32{1, 2, 3}})
	m.capability = g.Capability
	return err
}

func (m *move) open() {
	m.t.Helper()
	check(m.t, m.openTarget())
	check(m.t, m.openSource())
}

// announce tells of the given pieces with their right digests.
func (m *move) announce(pieces ...uint32) {
	m.t.Helper()
	digests := make([]uint32, len(pieces))
	for i, p := range pieces {
		digests[i] = client.Checksum(m.source(p))
	}
	check(m.t, m.p.Announce(background(m.t), m.plan.Attempt, pieces, digests))
}

func all() []uint32 {
	out := make([]uint32, shape.Pieces())
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

func (m *move) seal() error { return m.p.Seal(background(m.t), m.plan.Attempt) }

func (m *move) ready() {
	m.t.Helper()
	m.open()
	m.announce(all()...)
	check(m.t, m.seal())
}

func (m *move) spec() client.PullSpec {
	return client.PullSpec{Plan: m.plan, Token: m.token, SourceAddress: m.ph.PeerAddress(), Capability: m.capability}
}

func (m *move) pull() (client.PullResult, error) {
	return m.dh.control.Pull(background(m.t), m.spec(), nil)
}

func (m *move) commit() (client.TargetAnswer, error) {
	return m.dh.control.Commit(background(m.t), m.plan, m.token, m.plan.Attempt.Operation("commit"), 0)
}

func (m *move) undo() (client.CloseAnswer, error) {
	return m.dh.control.Undo(background(m.t), m.plan, m.plan.Attempt.Operation("undo"), client.Sides{Target: true})
}

// isEqual compares every piece.
func (m *move) isEqual() bool {
	for i := range shape.Pieces() {
		if string(m.source(i)) != string(m.target(i)) {
			return false
		}
	}
	return true
}

// neverVisible checks that the engine of D was not shown the target.
func (m *move) neverVisible() {
	m.t.Helper()
	if n, _ := m.d.saw(client.TargetCommitted, m.plan.Attempt); n > 0 || m.d.IsVisible(m.slot, m.plan.Attempt) {
		m.t.Fatal("the target is visible")
	}
}

// pair is two daemons with an engine each.
func pair(t *testing.T, change ...func(*daemon.Config)) (ph *host, p *engine, dh *host, d *engine) {
	t.Helper()
	ph, dh = startHost(t, "tp", change...), startHost(t, "td", change...)
	return ph, attach(t, ph.cfg.EngineSocket, "p1"), dh, attach(t, dh.cfg.EngineSocket, "d1")
}

func newPair(t *testing.T, change ...func(*daemon.Config)) *move {
	t.Helper()
	ph, p, dh, d := pair(t, change...)
	return newMove(t, ph, p, dh, d)
}

// eventuallyAfter lets real time pass: the daemons under test run on it.
func eventuallyAfter(t *testing.T, d time.Duration) {
	t.Helper()
	start := time.Now()
	eventually(t, "time passes", func() bool { return time.Since(start) >= d })
}
