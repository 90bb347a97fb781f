// Package world is a small fleet in memory, made of the protocol's own machines
// (handoff.Targets and Sources) and memledger, for tests: engines, their
// daemons and a ledger, whose state can be asked for and must be clean at rest
// (S9). Nothing in it moves bytes or takes time.
package world

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/memledger"
	"github.com/surehand/surehand/activities/mover"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// What every engine of a world has.
const (
	Model       = "tiny"
	Revision    = "r1"
	Blocks      = 64
	BlockTokens = 16
	Text        = "hello" // what D decodes, a token a letter
)

// World is a fleet. All methods are safe for concurrent use.
type World struct {
	Ledger *memledger.Ledger

	mu       sync.Mutex
	now      handoff.Instant
	changed  chan struct{} // closed at each change
	nodes    map[string]*node
	gates    map[handoff.Step]*gate
	onCommit func(handoff.Plan)
	calls    []string
}

// node is one engine with the daemon beside it.
type node struct {
	w       *World
	name    string
	targets *handoff.Targets
	sources *handoff.Sources
	silent  bool
	fail    map[handoff.Step]*handoff.Error
	breaks  *breakAt
}

// breakAt ends a decode's stream once, before the token at a position.
type breakAt struct {
	position uint32
	err      *handoff.Error
}

// New makes a world of engines by name; each can prefill and decode.
func New(names ...string) (*World, error) {
	w := &World{changed: make(chan struct{}), nodes: map[string]*node{}, gates: map[handoff.Step]*gate{}}
	w.Ledger = memledger.New(w.clock)
	for _, n := range names {
		w.nodes[n] = &node{w: w, name: n, targets: handoff.NewTargets(handoff.NodeID(n), 1), sources: handoff.NewSources(handoff.NodeID(n), 1),
			fail: map[handoff.Step]*handoff.Error{}}
		if err := w.register(n, 1); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *World) register(name string, i handoff.Incarnation) error {
	ctx := context.Background()
	e := ledger.Engine{ID: handoff.EngineID(name), Role: ledger.RoleBoth, Model: Model, Revision: Revision, Layout: shape.Layout[:], Node: handoff.NodeID(name),
		NodeIncarnation: i, ProcessIncarnation: i, Address: "engine:" + name, Control: "control:" + name, Peer: "peer:" + name,
		Blocks: Blocks, BlockTokens: BlockTokens, MaxTokens: 1 << 16}
	if err := w.Ledger.Register(ctx, e, time.Hour); err != nil {
		return err
	}
	return w.Ledger.Rebuild(ctx, ledger.RebuildRequest{Engine: e.ID, Incarnation: i, Total: Blocks, Lease: handoff.LeaseDefault})
}

// Register makes an engine known to a ledger that was emptied. What its daemon
// holds is told by Describe.
func (w *World) Register(name string) error {
	return w.register(name, w.Seat(name).Incarnation)
}

func (w *World) clock() handoff.Instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Seat is the engine's place in a plan.
func (w *World) Seat(name string) handoff.Seat {
	w.mu.Lock()
	defer w.mu.Unlock()
	return handoff.Seat{Engine: handoff.EngineID(name), Node: handoff.NodeID(name), Incarnation: w.nodes[name].targets.Incarnation}
}

// Route is where two engines answer.
func (w *World) Route(p, d string) steps.Route {
	at := func(n string) steps.Endpoint {
		return steps.Endpoint{Engine: "engine:" + n, Control: "control:" + n, Peer: "peer:" + n}
	}
	return steps.Route{P: at(p), D: at(d), Blocks: 2, Total: Blocks}
}

// Restart gives the daemon of an engine another life with empty tables.
func (w *World) Restart(name string) error {
	w.mu.Lock()
	n := w.nodes[name]
	i := n.targets.Incarnation + 1
	n.targets, n.sources = handoff.NewTargets(handoff.NodeID(name), i), handoff.NewSources(handoff.NodeID(name), i)
	w.mu.Unlock()
	return w.register(name, i)
}

// Silence makes an engine and its daemon answer nothing, or answer again.
func (w *World) Silence(name string, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name].silent = silent
}

// Refuse makes an engine refuse a step until it is called with nil.
func (w *World) Refuse(name string, step handoff.Step, err *handoff.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name].fail[step] = err
}

// Break ends the stream of the next decode that comes to a position, once.
func (w *World) Break(name string, position uint32, err *handoff.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name].breaks = &breakAt{position, err}
}

// OnCommit calls fn after each commit, before it is answered.
func (w *World) OnCommit(fn func(handoff.Plan)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onCommit = fn
}

// Pass lets time go by and ends the leases that are due.
func (w *World) Pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += d
	for _, n := range w.nodes {
		n.targets.Tick(w.now)
		n.sources.Tick(w.now)
	}
	w.touch()
}

// touch wakes whoever waits. Callers hold the lock.
func (w *World) touch() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Engine implements engine.Directory.
func (w *World) Engine(address string) (engine.Engine, error) {
	return find(w, "engine:", address, func(n *node) engine.Engine { return engineOf{n} })
}

// Mover implements mover.Directory.
func (w *World) Mover(address string) (mover.Mover, error) {
	return find(w, "control:", address, func(n *node) mover.Mover { return daemonOf{n} })
}

func find[T any](w *World, prefix, address string, as func(*node) T) (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range w.nodes {
		if prefix+name == address {
			return as(n), nil
		}
	}
	var none T
	return none, handoff.Errorf(handoff.CodeInvalid, "no engine at %q", address)
}

// Target is the state of an attempt at a daemon.
func (w *World) Target(name string, a handoff.Attempt) handoff.TargetState {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.nodes[name].targets.Get(a); r != nil {
		return r.State
	}
	return handoff.TargetUnknown
}

// Visible lists the attempts that engines may decode now (S2).
func (w *World) Visible() (out []handoff.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		for _, t := range n.targets.All() {
			if t.State == handoff.TargetCommitted {
				out = append(out, t.Plan.Attempt)
			}
		}
	}
	return out
}

// Left lists what is still held: live or undrained targets and sources, and
// promises. An empty list is a clean world (S8, S9).
func (w *World) Left() (out []string) {
	w.mu.Lock()
	for _, n := range w.nodes {
		for _, t := range n.targets.All() {
			if !t.Drained() {
				out = append(out, fmt.Sprintf("target %s at %s is %s", t.Plan.Attempt, n.name, t.State))
			} else if err := n.targets.Free(t.Plan.Attempt); err != nil {
				out = append(out, err.Error())
			}
		}
		for _, s := range n.sources.All() {
			if !s.Drained() {
				out = append(out, fmt.Sprintf("source %s at %s is %s", s.Plan.Attempt, n.name, s.State))
			}
		}
	}
	w.mu.Unlock()
	engines, err := w.Ledger.Engines(context.Background())
	if err != nil {
		return append(out, err.Error())
	}
	for _, e := range engines {
		if e.Promises != 0 {
			out = append(out, fmt.Sprintf("%d promises of %d blocks on %s", e.Promises, e.Used, e.ID))
		}
	}
	slices.Sort(out)
	return out
}

// Calls lists what engines and daemons were asked, in order.
func (w *World) Calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// enter begins one call at a node: it may be silent, or refuse.
func (n *node) enter(ctx context.Context, step handoff.Step, a handoff.Attempt) error {
	if err := n.w.pass(ctx, step); err != nil {
		return err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.calls = append(n.w.calls, fmt.Sprintf("%s at %s e%d", step, n.name, a.Epoch))
	if n.silent {
		return handoff.Errorf(handoff.CodeUnavailable, "%s is silent", n.name)
	}
	if err := n.fail[step]; err != nil {
		return err
	}
	return nil
}
