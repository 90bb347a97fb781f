package sim

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/fence/fencetest"
)

// Sizes of a simulated engine.
const (
	blockBytes = 64
	blocks     = 8
	slots      = 4
	pieces     = 2
	answer     = 4 // tokens
	poison     = 0xEE

	computeTime = 20 * time.Millisecond
	tokenTime   = 5 * time.Millisecond
	socketRetry = 50 * time.Millisecond
)

var layoutOf = handoff.Digest{9}

// engineSim is a serving engine whose KV depends on the attempt that computed
// it, over memory that is poisoned while it is free (S1, S4, S5).
type engineSim struct {
	s    *Sim
	h    *host
	life *life
	mem  *fencetest.Memory
	news chan fence.Notice

	mu       sync.Mutex
	att      *fence.Engine // at the daemon's present life; nil: not attached
	free     []uint32
	slots    []bool
	targets  map[handoff.Attempt]*decode
	sources  map[handoff.Attempt]*prefill
	over     map[handoff.Attempt]bool // cancelled or finished: never begun again
	revision string
	full     bool
	changed  chan struct{}
}

type decode struct {
	plan    handoff.Plan
	token   handoff.Token
	slot    uint32
	blocks  []uint32
	opened  bool
	begun   bool
	state   handoff.TargetState
	cause   handoff.Code
	drained bool
	tokens  uint32
	whole   bool
}

type prefill struct {
	plan    handoff.Plan
	blocks  []uint32
	grant   fence.SourceGrant
	opened  chan struct{}
	done    chan struct{}
	err     error
	closed  bool
	drained bool
}

func newEngine(s *Sim, h *host, l *life) *engineSim {
	e := &engineSim{s: s, h: h, life: l, mem: fencetest.New(blocks*blockBytes, slots), news: make(chan fence.Notice, 1024),
		slots: make([]bool, slots), targets: map[handoff.Attempt]*decode{}, sources: map[handoff.Attempt]*prefill{},
		over: map[handoff.Attempt]bool{}, revision: revision, changed: make(chan struct{})}
	for b := range uint32(blocks) {
		e.free = append(e.free, b)
		e.poison(b)
	}
	return e
}

func (e *engineSim) touch() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *engineSim) poison(b uint32) {
	e.mem.Put(uint64(b)*blockBytes, slices.Repeat([]byte{poison}, blockBytes))
}

// take allocates two blocks, whose poison nobody may have touched (S4).
func (e *engineSim) take() []uint32 {
	if e.full || len(e.free) < pieces {
		return nil
	}
	out := slices.Clone(e.free[:pieces])
	e.free = slices.Clone(e.free[pieces:])
	for _, b := range out {
		e.intact(b)
	}
	return out
}

// intact says so when somebody wrote a free block.
func (e *engineSim) intact(b uint32) {
	if slices.ContainsFunc(e.mem.Get(uint64(b)*blockBytes, blockBytes), func(x byte) bool { return x != poison }) {
		e.s.violate("S4: block %d of %s was written while it was free", b, e.life.name)
	}
}

func (e *engineSim) give(bs []uint32) {
	for _, b := range bs {
		e.poison(b)
		e.free = append(e.free, b)
	}
}

// kv is what the prefill of an attempt computes for a piece.
func kv(a handoff.Attempt, body handoff.Digest, piece uint32) []byte {
	x := sha256.Sum256(append(append([]byte(a.String()), body[:]...), byte(piece)))
	y := sha256.Sum256(x[:])
	return append(x[:], y[:]...)
}

func offsets(bs []uint32) []uint64 {
	out := make([]uint64, len(bs))
	for i, b := range bs {
		out[i] = uint64(b) * blockBytes
	}
	return out
}

func shape(revision string) handoff.Shape {
	return handoff.Shape{Revision: revision, Layout: layoutOf, Tokens: 32,
		Groups: []handoff.Group{{Name: "kv", Layers: 1, Blocks: pieces, BlockBytes: blockBytes}}}
}

// run follows what the daemon tells.
func (e *engineSim) run() {
	for {
		select {
		case n := <-e.news:
			e.told(n)
		case <-e.life.ctx.Done():
			return
		}
	}
}

func (e *engineSim) told(n fence.Notice) {
	if n.IsSource {
		e.toldSource(n)
		return
	}
	e.mu.Lock()
	d := e.targets[n.Attempt]
	if d == nil {
		e.mu.Unlock()
		return
	}
	if n.Target != handoff.TargetUnknown {
		d.state, d.cause = n.Target, n.Cause
	}
	begin := d.state == handoff.TargetCommitted && !d.begun
	d.begun = d.begun || begin
	d.drained = d.drained || n.Drained && d.state.Final()
	gone := d.drained && d.blocks != nil
	e.touch()
	e.mu.Unlock()
	if begin {
		go e.decode(n.Attempt, d)
	}
	if gone {
		e.freeTarget(n.Attempt, d)
	}
}

// freeTarget takes blocks back after the daemon said drained, and tells it so.
func (e *engineSim) freeTarget(a handoff.Attempt, d *decode) {
	e.mu.Lock()
	bs, att := d.blocks, e.att
	d.blocks = nil
	e.give(bs)
	e.slots[d.slot] = false
	e.mu.Unlock()
	if att != nil {
		e.s.must(e.h.core().FreedTarget(att, a), "freed target")
	}
}

func (e *engineSim) toldSource(n fence.Notice) {
	e.mu.Lock()
	p := e.sources[n.Attempt]
	if p == nil {
		e.mu.Unlock()
		return
	}
	p.closed = p.closed || n.Source == handoff.SourceClosed
	bs, att := p.blocks, e.att
	if !n.Drained && !(p.closed && e.s.omits(drainSource)) || bs == nil {
		e.touch()
		e.mu.Unlock()
		return
	}
	p.blocks = nil
	if e.s.reading(e.h.name, n.Attempt) {
		e.s.violate("S5: the source of e%d was freed under a read", n.Attempt.Epoch)
	}
	e.give(bs)
	e.touch()
	e.mu.Unlock()
	if att != nil && !e.s.omits(drainSource) {
		e.s.must(e.h.core().FreedSource(att, n.Attempt), "freed source")
	}
}

// decode samples while the flag page shows the attempt, looking at all of its
// memory before each token.
func (e *engineSim) decode(a handoff.Attempt, d *decode) {
	for i := uint32(0); ; i++ {
		e.mu.Lock()
		if d.blocks == nil || !e.mem.IsVisible(d.slot, a) || e.life.dead() {
			e.mu.Unlock()
			return
		}
		for p, b := range d.blocks {
			if got := e.mem.Get(uint64(b)*blockBytes, blockBytes); !slices.Equal(got, kv(a, d.plan.BodyDigest, uint32(p))) {
				e.s.violate("S1: piece %d of e%d, decoded at %s, is of another origin", p, a.Epoch, e.life.name)
			}
		}
		d.tokens = i + 1
		d.whole = d.tokens == answer
		e.touch()
		e.mu.Unlock()
		if i+1 == answer {
			break
		}
		select {
		case <-time.After(tokenTime):
		case <-e.life.ctx.Done():
			return
		}
	}
	_ = e.s.beside(e.life.ctx, e.life, e.h.name, "finish-target", a, func(context.Context) error {
		e.mu.Lock()
		att := e.att
		e.mu.Unlock()
		if att == nil {
			return unavailable("not attached")
		}
		return e.h.core().FinishTarget(att, a)
	})
}

// compute is one prefill run: it goes on whoever asked for it.
func (e *engineSim) compute(p *prefill) {
	a := p.plan.Attempt
	defer close(p.done)
	for piece := range uint32(pieces) {
		time.Sleep(computeTime / pieces)
		e.mu.Lock()
		if p.closed || p.blocks == nil || e.life.dead() {
			e.mu.Unlock()
			p.err = handoff.Errorf(handoff.CodeClosed, "the source is closed")
			return
		}
		bytes := kv(a, p.plan.BodyDigest, piece)
		e.mem.Put(uint64(p.blocks[piece])*blockBytes, bytes)
		e.mu.Unlock()
		p.err = e.beside(a, "announce", func(att *fence.Engine) error {
			return e.h.core().Announce(att, a, []uint32{piece}, []uint32{wire.Checksum(bytes)})
		})
		if p.err != nil {
			return
		}
	}
	p.err = e.beside(a, "seal", func(att *fence.Engine) error { return e.h.core().Seal(att, a) })
}

// beside asks the daemon on this host, again while it restarts.
func (e *engineSim) beside(a handoff.Attempt, op string, fn func(*fence.Engine) error) (err error) {
	for range 4 {
		err = e.s.beside(e.life.ctx, e.life, e.h.name, op, a, func(context.Context) error {
			e.mu.Lock()
			att := e.att
			e.mu.Unlock()
			if att == nil {
				return unavailable("not attached")
			}
			return fn(att)
		})
		if handoff.CodeOf(err) != handoff.CodeUnavailable || e.life.dead() {
			return err
		}
		time.Sleep(socketRetry)
	}
	return err
}

// Describe implements engine.Engine; nothing here asks for it.
func (e *engineSim) Describe(context.Context) (engine.Description, error) {
	return engine.Description{Engine: handoff.EngineID(e.life.name), Role: engine.RoleBoth, Model: model, Revision: e.revision}, nil
}
