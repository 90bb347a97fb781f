package client

import (
	"context"
	"errors"
	"sync"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/internal/flagpage"
)

const (
	// MaxFlagSlots bounds EngineConfig.FlagSlots.
	MaxFlagSlots = flagpage.MaxSlots

	sendTimeout = 5 * time.Second // a daemon that takes no byte for so long is left
)

// EngineConfig says who attaches, and with what memory.
type EngineConfig struct {
	Socket   string // of the daemon's engine side
	Engine   handoff.EngineID
	Revision string // of the model's weights and tokenizer
	Layout   handoff.Digest
	// Described is what Layout stands for, for peers whose layout is another; nil:
	// only equal layouts are moved.
	Described *layout.Described
	Segment   *Memory // stays the caller's; must outlive the Engine
	FlagSlots uint32  // how many targets can be open at once
}

// Engine is one engine's attachment to the daemon beside it. Safe for
// concurrent use.
type Engine struct {
	cfg    EngineConfig
	flags  *Memory
	page   *flagpage.Page
	events *queue
	stop   context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup

	mu      sync.Mutex
	link    *link // nil while detached
	daemon  identity
	targets map[handoff.Attempt]*track // asked for and not freed
	sources map[handoff.Attempt]*track
}

// track is what the engine was told of one of its attempts, so that each event
// comes once although the daemon may die and come back.
type track struct{ committed, over, drained bool }

// identity is what a daemon says of itself; it changes when it restarts.
type identity struct {
	node        handoff.NodeID
	incarnation handoff.Incarnation
	peer        string
	protocol    uint32
}

// Attach connects to the daemon's engine socket, passes segment and flag page by
// SCM_RIGHTS and waits until the daemon took both. It retries until ctx ends,
// except when the daemon refuses for good.
func Attach(ctx context.Context, cfg EngineConfig) (*Engine, error) {
	if err := handoff.ValidateID("engine", string(cfg.Engine)); err != nil {
		return nil, err
	}
	if cfg.Segment == nil || cfg.FlagSlots == 0 || cfg.FlagSlots > MaxFlagSlots {
		return nil, handoff.Errorf(handoff.CodeInvalid, "attach needs a segment and 1..%d flag slots", MaxFlagSlots)
	}
	flags, err := NewMemory("surehand-flags", int(cfg.FlagSlots)*flagpage.SlotBytes)
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, flags: flags, page: flagpage.New(flags.Bytes(), cfg.FlagSlots), events: newQueue(),
		targets: map[handoff.Attempt]*track{}, sources: map[handoff.Attempt]*track{}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	l, attached, err := e.connect(ctx)
	if err != nil {
		e.stop()
		return nil, also(err, flags.Close())
	}
	if err := e.adopt(l, attached, true); err != nil {
		e.stop()
		return nil, also(err, errors.Join(l.conn.Close(), flags.Close()))
	}
	e.wg.Go(func() { e.events.run(e.ctx.Done()) })
	e.wg.Go(func() { e.run(l) })
	return e, nil
}

func (e *Engine) identity() identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.daemon
}

// Node is the daemon's node id.
func (e *Engine) Node() handoff.NodeID { return e.identity().node }

// Incarnation is the daemon's present life; plans must name it.
func (e *Engine) Incarnation() handoff.Incarnation { return e.identity().incarnation }

// PeerAddress is where other daemons reach this one.
func (e *Engine) PeerAddress() string { return e.identity().peer }

// PeerProtocol is the version that the daemon speaks to others; 0: it is of a
// release that does not tell.
func (e *Engine) PeerProtocol() uint32 { return e.identity().protocol }

// Events gives what happens, in order. It is closed by Close.
func (e *Engine) Events() <-chan Event { return e.events.out }

// IsVisible asks the flag page, without a system call, whether the target of a
// in its flag slot is committed.
func (e *Engine) IsVisible(slot uint32, a handoff.Attempt) bool {
	return slot < e.cfg.FlagSlots && e.page.IsVisible(slot, a)
}

// TargetSpec is where the state of a handoff will lie at D.
type TargetSpec struct {
	Plan     handoff.Plan
	Shape    handoff.Shape
	Offsets  []uint64 // of each piece in the segment, in piece order
	FlagSlot uint32   // not in use by another target that is not freed
	Lease    time.Duration
	Held     []uint32 // pieces of a prefix that the engine has already and vouches for, ascending
}

// OpenTarget gives the target's memory to the attempt and answers τ.
func (e *Engine) OpenTarget(ctx context.Context, spec TargetSpec) (handoff.Token, error) {
	a := spec.Plan.Attempt
	known := e.track(e.targets, a) // before asking: the answer may be lost
	reply, err := e.ask(ctx, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_OpenTarget{OpenTarget: &transferv1.OpenTarget{
		Plan: rpc.Plan(spec.Plan), Shape: rpc.Shape(spec.Shape), Offsets: spec.Offsets, FlagSlot: spec.FlagSlot, LeaseMs: spec.Lease.Milliseconds(), Held: spec.Held}}})
	if err != nil {
		if !known && handoff.CodeOf(err) != handoff.CodeUnavailable {
			e.forget(a, false)
		}
		return handoff.Token{}, err
	}
	return rpc.FromToken(reply.GetTargetOpened().GetToken())
}

// SourceSpec is where the state of a handoff lies, or will lie, at P.
type SourceSpec struct {
	Plan    handoff.Plan
	Shape   handoff.Shape
	Offsets []uint64
	Blocks  []uint32 // physical blocks pinned under the grant
	Lease   time.Duration
	Trace   string // traceparent of the prefill; empty: none
	// Tenant is a digest of whose state it is, such as of the salt of its prefixes;
	// zero: not said. The daemon then keeps no tenants apart and can tell no crossing.
	Tenant handoff.Digest
}

// SourceGrant is the right to read a source.
type SourceGrant struct {
	Capability []byte // for the plan's D alone
	Grant      handoff.GrantID
}

// OpenSource grants the plan's D to read the source's pieces once announced.
func (e *Engine) OpenSource(ctx context.Context, spec SourceSpec) (SourceGrant, error) {
	a := spec.Plan.Attempt
	known := e.track(e.sources, a)
	open := &transferv1.OpenSource{Plan: rpc.Plan(spec.Plan), Shape: rpc.Shape(spec.Shape), Offsets: spec.Offsets, Blocks: spec.Blocks,
		LeaseMs: spec.Lease.Milliseconds(), Trace: spec.Trace}
	if spec.Tenant != (handoff.Digest{}) {
		open.Tenant = spec.Tenant[:]
	}
	reply, err := e.ask(ctx, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_OpenSource{OpenSource: open}})
	if err != nil {
		if !known && handoff.CodeOf(err) != handoff.CodeUnavailable {
			e.forget(a, true)
		}
		return SourceGrant{}, err
	}
	o := reply.GetSourceOpened()
	return SourceGrant{Capability: o.GetCapability(), Grant: handoff.GrantID(o.GetGrant())}, nil
}

// Announce says that pieces are written, for good, with the Checksum of each. It
// does not wait for the daemon: an error of it comes back from Seal.
func (e *Engine) Announce(ctx context.Context, a handoff.Attempt, pieces, digests []uint32) error {
	if len(pieces) != len(digests) {
		return handoff.Errorf(handoff.CodeInvalid, "%d pieces with %d digests", len(pieces), len(digests))
	}
	return e.tell(ctx, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_Announce{Announce: &transferv1.Announce{
		Attempt: rpc.Attempt(a), Pieces: pieces, Digests: digests}}})
}

// Seal freezes the source's manifest: every piece is announced.
func (e *Engine) Seal(ctx context.Context, a handoff.Attempt) error {
	_, err := e.ask(ctx, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_Seal{Seal: &transferv1.Seal{Attempt: rpc.Attempt(a)}}})
	return err
}

// CloseSource ends a grant because the engine drops or rewrites the state. Its
// memory may be touched only after SourceDrained.
func (e *Engine) CloseSource(ctx context.Context, a handoff.Attempt, code handoff.Code) error {
	_, err := e.ask(ctx, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_CloseSource{CloseSource: &transferv1.CloseSource{Attempt: rpc.Attempt(a), Code: code.String()}}})
	return err
}

// FinishTarget says that the decode of a target is over, or that the engine
// gives an uncommitted one up.
func (e *Engine) FinishTarget(ctx context.Context, a handoff.Attempt) error {
	_, err := e.ask(ctx, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_FinishTarget{FinishTarget: &transferv1.FinishTarget{Attempt: rpc.Attempt(a)}}})
	return err
}

// Freed says that the engine took the blocks of a drained target or source back.
// For an attempt of a daemon that is dead there is nothing to say.
func (e *Engine) Freed(ctx context.Context, a handoff.Attempt, source bool) error {
	e.mu.Lock()
	known := e.targets[a] != nil
	if source {
		known = e.sources[a] != nil
	}
	e.mu.Unlock()
	if !known {
		return nil
	}
	_, err := e.ask(ctx, &transferv1.EngineMessage{Body: &transferv1.EngineMessage_Freed{Freed: &transferv1.Freed{Attempt: rpc.Attempt(a), Source: source}}})
	if err == nil {
		e.forget(a, source)
	}
	return err
}

// track begins to follow an attempt and says whether it was followed before.
func (e *Engine) track(side map[handoff.Attempt]*track, a handoff.Attempt) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if side[a] != nil {
		return true
	}
	side[a] = &track{}
	return false
}

func (e *Engine) forget(a handoff.Attempt, source bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if source {
		delete(e.sources, a)
	} else {
		delete(e.targets, a)
	}
}

// Close detaches for good. To the daemon it is the engine's death: everything
// that is open is closed, committed targets are aborted.
func (e *Engine) Close() error {
	e.stop()
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	var err error
	if l != nil {
		err = l.conn.Close()
	}
	e.wg.Wait()
	if err := errors.Join(err, e.flags.Close()); err != nil {
		return handoff.Errorf(handoff.CodeInternal, "close: %s", err)
	}
	return nil
}

// also adds what went wrong while err was cleaned up after; err's code stays.
func also(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return handoff.Errorf(handoff.CodeOf(err), "%s; and %s", err, cleanup)
}
