package sim

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/fence/fencetest"
	"github.com/surehand/surehand/transferd/pull"
	"github.com/surehand/surehand/transferd/transport"
)

// host is one node: an engine, and beside it the real core and the real pull
// loop of a transferd, whose way to other hosts is the scheduler's net.
type host struct {
	s    *Sim
	name string // of the daemon; the engine is name.engine

	mu     sync.Mutex
	daemon *life
	now    atomic.Pointer[daemonSim]
	engine *engineSim
	lives  handoff.Incarnation
}

type daemonSim struct {
	life   *life
	core   *fence.Core
	puller *pull.Puller
}

func (h *host) core() *fence.Core { return h.now.Load().core }

func newHost(s *Sim, name string) *host {
	h := &host{s: s, name: name}
	h.boot()
	h.bootEngine()
	return h
}

// boot begins a life of the daemon.
func (h *host) boot() {
	h.lives++
	d := &daemonSim{life: h.s.newLife(h.name, h.lives)}
	var awaited []handoff.EngineID
	if h.engine != nil && !h.engine.life.dead() {
		awaited = append(awaited, handoff.EngineID(h.engine.life.name))
	}
	d.core = fence.New(fence.Config{Node: handoff.NodeID(h.name), Incarnation: h.lives, Lease: h.s.lease, Awaited: awaited,
		Trace: func(e fence.Event) { h.s.traced(d.life, e) }})
	d.puller = pull.New(pull.Config{Core: d.core, Transports: []transport.Transport{way{h.s, d}}, ProgressDeadline: progress, Log: slog.New(slog.DiscardHandler)})
	h.now.Store(d)
	h.daemon = d.life
	go d.core.Run(d.life.ctx)
}

func (h *host) bootEngine() {
	h.engine = newEngine(h.s, h, h.s.newLife(h.name+".engine", 1))
	go h.engine.run()
	h.attach()
}

// attach lets the engine into the daemon's present life, which adopts what its
// flag page shows (rule 9).
func (h *host) attach() {
	e := h.engine
	att := e.mem.Engine(handoff.EngineID(e.life.name), e.revision, layoutOf, func(n fence.Notice) { e.news <- n })
	got, err := h.core().Attach(att)
	if err != nil {
		h.s.must(err, "attach")
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.att = att
	for a, p := range e.sources { // the life that lent them is gone, and every read with it
		if p.blocks != nil {
			e.give(p.blocks)
			p.blocks, p.closed = nil, true
			e.over[a] = true
		}
	}
	kept := map[handoff.Attempt]bool{}
	for _, a := range got.Adopted {
		kept[a] = true
		if d := e.targets[a]; d != nil && !d.begun {
			d.state, d.begun = handoff.TargetCommitted, true
			go e.decode(a, d)
		}
	}
	for a, d := range e.targets {
		if !kept[a] && d.blocks != nil {
			d.state = handoff.TargetClosed
			if d.begun {
				d.state = handoff.TargetAborted
			}
			e.give(d.blocks)
			e.slots[d.slot] = false
			d.blocks = nil
			e.over[a] = true
			h.s.must(h.core().FreedTarget(att, a), "freed at attach")
		}
	}
	e.touch()
}

// killDaemon ends the daemon between two instants: the scheduler calls it while
// nothing runs.
func (h *host) killDaemon() {
	d := h.now.Load()
	e := h.engine
	e.mu.Lock()
	if e.att != nil {
		fencetest.Sever(e.att, e.mem)
	}
	e.att = nil
	e.mu.Unlock()
	d.life.end()
	d.core.Stop()
	h.s.cutReads(h.name)
}

// killEngine ends the engine: its memory goes with it, and its daemon sees that.
func (h *host) killEngine() {
	e := h.engine
	e.mu.Lock()
	att := e.att
	e.att = nil
	e.mu.Unlock()
	e.life.end()
	if att != nil && !h.daemon.dead() {
		c := h.core()
		go c.Detach(att)
	}
}

const rebootTime = 300 * time.Millisecond

// restartDaemon and restartEngine kill, and begin another life a little later.
func (h *host) restartDaemon() {
	h.killDaemon()
	h.s.later(rebootTime, func() {
		h.boot()
		if !h.engine.life.dead() {
			h.attach()
		}
		h.s.register(h)
	})
}

func (h *host) restartEngine() {
	h.killEngine()
	h.s.later(rebootTime, h.returnEngine)
}

// returnEngine tries until its forerunner's memory is drained.
func (h *host) returnEngine() {
	if h.daemon.dead() {
		h.s.later(rebootTime, h.returnEngine)
		return
	}
	was := h.engine
	h.engine = newEngine(h.s, h, h.s.newLife(h.name+".engine", was.life.incarnation+1))
	att := h.engine.mem.Engine(handoff.EngineID(h.engine.life.name), h.engine.revision, layoutOf, func(fence.Notice) {})
	e := h.engine
	att.Notify = func(n fence.Notice) { e.news <- n }
	if _, err := h.core().Attach(att); err != nil {
		h.engine.life.end()
		h.s.later(rebootTime, h.returnEngine)
		return
	}
	e.att = att
	go e.run()
	h.s.register(h)
}

func (h *host) restartBoth() {
	h.killEngine()
	h.killDaemon()
	h.s.later(rebootTime, func() {
		h.boot()
		h.engine = newEngine(h.s, h, h.s.newLife(h.name+".engine", h.engine.life.incarnation+1))
		go h.engine.run()
		h.attach()
		h.s.register(h)
	})
}

// progress is the progress deadline of a pull (rule 26).
const progress = 2 * time.Second
