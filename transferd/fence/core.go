// Package fence is the daemon's core: one lock around the two tables of
// contracts/handoff and the memory that their records stand for. Every rule of
// who may read, write, commit and close lives in those tables; this package
// steps them, and acts on what changed: it tells engines, marks flag pages,
// stops readers and writers, wakes whoever waits for a drain.
//
// Lock order: Core.mu is the only lock; what is called under it (Engine.Notify,
// Config.Trace) never blocks and never calls back.
//
// Every operation is idempotent under (handoff, epoch, nonce): a repeat reaches
// the same table cell, has no second effect and answers the present state.
package fence

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
)

const (
	// Retention is how long a record stays after its memory was freed, or a
	// tombstone after it was set: past any handoff's deadline and budget (rule 7).
	Retention = 10 * time.Minute
	// CapabilityLife bounds a capability whatever its grant's renewals.
	CapabilityLife = 30 * time.Minute
	// MaxEngines bounds the engines of one daemon.
	MaxEngines = 64
	// quarantineShare of an engine's segment may be quarantined before opens are refused.
	quarantineShare = 4
)

// Config of a core.
type Config struct {
	Node        handoff.NodeID
	Incarnation handoff.Incarnation
	Lease       time.Duration // default of targets and sources; zero: handoff.LeaseDefault
	// QuarantineMax bounds, per engine, the bytes that are over but not drained;
	// zero: a quarter of the engine's segment.
	QuarantineMax uint64
	Retention     time.Duration      // zero: Retention
	Awaited       []handoff.EngineID // attached when the life before ended
	Trace         func(Event)        // nil: none; called under the lock
}

// Core owns what may be read and written on one host.
type Core struct {
	cfg   Config
	key   capability.Key
	start time.Time
	rearm chan struct{} // the next tick is sooner than Run thinks

	mu       sync.Mutex
	targets  *handoff.Targets
	sources  *handoff.Sources
	pins     handoff.Pins
	held     map[handoff.Attempt]*target // target memory that is not freed
	lent     map[handoff.Attempt]*source // source memory that is not freed
	engines  map[handoff.EngineID]*Engine
	leaving  map[handoff.EngineID]int     // detached, with memory that is not drained
	attached map[handoff.EngineID]bool    // was attached in this life: its flag page is adopted
	awaited  map[handoff.EngineID]bool    // not yet, though it was in the life before
	arrivals map[handoff.Attempt]*arrival // pulls that wait for their source to open
	retired  []retired                    // freed records in the order of their end
	armed    handoff.Instant              // when Run wakes next
	draining bool                         // nothing new is opened
	stopped  bool                         // and no pull or read begins
	totals   totals
	refusals map[handoff.Code]uint64
}

type totals struct {
	committed, committedBytes, pulledBytes uint64
	gathering, scattering                  time.Duration
}

// New begins a life with empty tables.
func New(cfg Config) *Core {
	if cfg.Lease == 0 {
		cfg.Lease = handoff.LeaseDefault
	}
	if cfg.Retention == 0 {
		cfg.Retention = Retention
	}
	c := &Core{cfg: cfg, key: capability.NewKey(), start: time.Now(), rearm: make(chan struct{}, 1),
		targets: handoff.NewTargets(cfg.Node, cfg.Incarnation), sources: handoff.NewSources(cfg.Node, cfg.Incarnation),
		held: map[handoff.Attempt]*target{}, lent: map[handoff.Attempt]*source{},
		engines: map[handoff.EngineID]*Engine{}, leaving: map[handoff.EngineID]int{},
		attached: map[handoff.EngineID]bool{}, awaited: map[handoff.EngineID]bool{},
		arrivals: map[handoff.Attempt]*arrival{}, refusals: map[handoff.Code]uint64{}}
	c.targets.Lease, c.sources.Lease = cfg.Lease, cfg.Lease
	for _, id := range cfg.Awaited {
		c.awaited[id] = true
	}
	return c
}

// Node is whose core this is.
func (c *Core) Node() handoff.NodeID { return c.cfg.Node }

// Incarnation is the life of the daemon.
func (c *Core) Incarnation() handoff.Incarnation { return c.cfg.Incarnation }

// Lease is the default lease of targets and sources.
func (c *Core) Lease() time.Duration { return c.cfg.Lease }

// now is monotonic time since the start; it never leaves this process (rule 24).
func (c *Core) now() handoff.Instant { return time.Since(c.start) }

// enter takes the lock with every lease that is due ended, so that no operation
// slips in between a lease's end and its sweep.
func (c *Core) enter() {
	c.mu.Lock()
	c.tick()
}

// leave gives the lock back and wakes Run if something now ends sooner.
func (c *Core) leave() {
	sooner := false
	if next, ok := c.nextTick(); ok && (c.armed == 0 || next < c.armed) {
		c.armed, sooner = next, true
	}
	c.mu.Unlock()
	if sooner {
		select {
		case c.rearm <- struct{}{}:
		default:
		}
	}
}

// tick ends what is due: leases, and the retention of freed records.
func (c *Core) tick() {
	now := c.now()
	for _, a := range c.targets.Tick(now) {
		c.expireTarget(a)
	}
	for _, a := range c.sources.Tick(now) {
		c.expireSource(a)
	}
	c.forget(now)
}

func (c *Core) nextTick() (handoff.Instant, bool) {
	next, ok := c.targets.NextTick()
	if s, sok := c.sources.NextTick(); sok && (!ok || s < next) {
		next, ok = s, true
	}
	if len(c.retired) > 0 && (!ok || c.retired[0].forgetAt < next) {
		next, ok = c.retired[0].forgetAt, true
	}
	return next, ok
}

// Run ends leases on time until ctx ends.
func (c *Core) Run(ctx context.Context) {
	const idle = time.Hour
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		c.mu.Lock()
		c.tick()
		wait := idle
		if next, ok := c.nextTick(); ok {
			c.armed = next
			wait = max(next-c.now(), 0)
		} else {
			c.armed = 0
		}
		c.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.rearm:
		}
	}
}

// retired is a record without memory, waiting to be forgotten.
type retired struct {
	attempt  handoff.Attempt
	source   bool
	forgetAt handoff.Instant
}

func (c *Core) retire(a handoff.Attempt, source bool) {
	c.retired = append(c.retired, retired{a, source, c.now() + c.cfg.Retention})
}

func (c *Core) forget(now handoff.Instant) {
	for len(c.retired) > 0 && c.retired[0].forgetAt <= now {
		r := c.retired[0]
		c.retired = c.retired[1:]
		if r.source {
			c.sources.Forget(r.attempt)
		} else {
			c.targets.Forget(r.attempt)
		}
	}
}

// Drain refuses new opens from now on; what runs may end.
func (c *Core) Drain() {
	c.enter()
	defer c.leave()
	c.draining = true
}

// Busy is the number of handoffs that a stop would spoil: targets that are open
// and not committed, sources that are open.
func (c *Core) Busy() int {
	c.enter()
	defer c.leave()
	n := 0
	for _, t := range c.held {
		if t.landing != nil || t.told < handoff.TargetCommitted {
			n++
		}
	}
	for _, l := range c.lent {
		if l.reading != nil || l.told != handoff.SourceClosed {
			n++
		}
	}
	return n
}

// Stop ends every read and pull. Committed targets stay visible: the next life
// adopts them from the flag pages.
func (c *Core) Stop() {
	c.enter()
	defer c.leave()
	c.draining, c.stopped = true, true
	for _, t := range c.held {
		if t.landing != nil {
			t.landing.stop()
		}
	}
	for _, l := range c.lent {
		if l.reading != nil {
			l.reading.stop()
		}
	}
}

// Unmap gives every engine's memory back. It is the core's last call: nothing
// may run that reads, writes or steps.
func (c *Core) Unmap() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	engines := map[*Engine]bool{}
	for _, e := range c.engines {
		engines[e] = true
	}
	for _, t := range c.held {
		engines[t.engine] = true
	}
	for _, l := range c.lent {
		engines[l.engine] = true
	}
	var err error
	for e := range engines {
		if e.Close != nil {
			err = errors.Join(err, e.Close())
			e.Close = nil
		}
	}
	return err
}
