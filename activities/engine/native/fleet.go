package native

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/activities/mover"
	"github.com/surehand/surehand/contracts/handoff"
)

// NodeID is the node of every native engine: this process.
const NodeID handoff.NodeID = "native"

// controlPrefix makes an engine's control address out of its URL, so that a
// directory can tell it from a transferd's.
const controlPrefix = "native:"

// Fleet is a static set of native engines and the table of what is under way.
// Safe for concurrent use.
type Fleet struct {
	config      Config
	caps        vllm.Capabilities
	incarnation handoff.Incarnation
	began       time.Time
	seats       []*seat
	byAddress   map[string]*seat
	metrics     *metrics
	gate        *gate

	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	table    *handoff.Targets
	attempts map[handoff.Attempt]*attempt
	freeing  map[handoff.Attempt]*release // P is being told
	families map[handoff.HandoffID]*family
	records  []record // closed attempts, oldest first
	refusals map[string]refusal
}

// family is what epochs of one handoff share.
type family struct {
	live   int
	ended  map[handoff.Attempt]error // why
	broke  map[*seat]bool            // D that failed an earlier epoch
	final  error                     // the client's fault: no other epoch helps
	forget time.Time                 // once nothing lives
}

type record struct {
	attempt handoff.Attempt
	at      time.Time
}

var (
	_ engine.Directory = (*Fleet)(nil)
	_ mover.Directory  = (*Fleet)(nil)
)

// Open prepares a fleet and begins to watch its engines. Close it.
func Open(c Config) (*Fleet, error) {
	c.defaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	caps, err := c.capabilities()
	if err != nil {
		return nil, err
	}
	f := &Fleet{config: c, caps: caps, began: time.Now(), byAddress: map[string]*seat{},
		attempts: map[handoff.Attempt]*attempt{}, freeing: map[handoff.Attempt]*release{}, families: map[handoff.HandoffID]*family{}, refusals: map[string]refusal{}}
	// Later lives are greater: a ledger that outlives us takes the newest.
	f.incarnation = handoff.Incarnation(f.began.UnixNano())
	f.gate = newGate(f.limitOf)
	f.table = handoff.NewTargets(NodeID, f.incarnation)
	if err := f.seat(); err != nil {
		return nil, err
	}
	if f.metrics, err = newMetrics(c.Metrics, f); err != nil {
		return nil, err
	}
	f.life, f.end = context.WithCancel(context.Background())
	for _, s := range f.seats {
		f.wg.Go(func() { s.watch(f.life) })
		f.wg.Go(func() { s.hold(f.life) })
	}
	f.wg.Go(f.tick)
	return f, nil
}

// seat opens the servers. One that is named in both lists is P and D.
func (f *Fleet) seat() error {
	for _, list := range []struct {
		urls []string
		role engine.Role
	}{{f.config.Prefill, engine.RolePrefill}, {f.config.Decode, engine.RoleDecode}} {
		for _, url := range list.urls {
			if s := f.byAddress[url]; s != nil {
				s.role |= list.role
				continue
			}
			server, err := vllm.Open(f.config.server(url))
			if err != nil {
				return err
			}
			s := &seat{f: f, url: url, id: EngineID(server.Address()), server: server, role: list.role}
			for _, other := range f.seats {
				if other.id == s.id {
					return handoff.Errorf(handoff.CodeInvalid, "engine %s is named twice", s.id)
				}
			}
			f.seats = append(f.seats, s)
			f.byAddress[url], f.byAddress[controlPrefix+url] = s, s
		}
	}
	return nil
}

// Close ends what is under way: uncommitted attempts are closed and P is told to
// free, D aborts when its connection closes.
func (f *Fleet) Close() {
	leaving := handoff.Errorf(handoff.CodeUnavailable, "this process is shutting down")
	f.mu.Lock()
	for _, a := range f.attempts {
		if a.decode != nil {
			a.decode.stop(leaving)
		}
		f.abandon(a, leaving)
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(f.life, askTimeout)
	defer cancel()
	for _, k := range f.owed() {
		f.freed(ctx, k)
	}
	f.end()
	f.wg.Wait()
	for _, s := range f.seats {
		s.server.Close()
	}
}

// Engine finds an engine by the address in a plan's route.
func (f *Fleet) Engine(address string) (engine.Engine, error) {
	if s := f.byAddress[address]; s != nil {
		return s, nil
	}
	return nil, handoff.Errorf(handoff.CodeInvalid, "no engine of this fleet is at that address")
}

// Mover finds what stands in for an engine's daemon.
func (f *Fleet) Mover(address string) (mover.Mover, error) {
	if s := f.byAddress[address]; s != nil {
		return daemon{s}, nil
	}
	return nil, handoff.Errorf(handoff.CodeInvalid, "no engine of this fleet is at that address")
}

// Has says whether an address belongs to this fleet.
func (f *Fleet) Has(address string) bool { return f.byAddress[address] != nil }

func (f *Fleet) now() handoff.Instant { return time.Since(f.began) }

// layout stands for what a native pair must have in common; the engines compare
// the rest themselves, in their handshake.
func (f *Fleet) layout() handoff.Digest {
	return sha256.Sum256([]byte("native " + string(f.config.Style)))
}

// tick ends leases, and forgets what is over for long.
func (f *Fleet) tick() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-f.life.Done():
			return
		case now := <-t.C:
			f.mu.Lock()
			for _, a := range f.table.Tick(f.now()) {
				f.over(a, handoff.Errorf(handoff.CodeLease, "the attempt's lease ended: nobody renewed it"))
			}
			f.unopened(now)
			f.forget(now)
			f.mu.Unlock()
		}
	}
}

// unopened ends attempts that a prefill made known and no reserve followed. The
// caller holds the lock.
func (f *Fleet) unopened(now time.Time) {
	for _, a := range f.attempts {
		if !a.open && now.Sub(a.made) > unopenedKept {
			f.abandon(a, handoff.Errorf(handoff.CodeLease, "no room was reserved for the attempt"))
		}
	}
}

// forget drops old records. The caller holds the lock.
func (f *Fleet) forget(now time.Time) {
	for len(f.records) > 0 && now.Sub(f.records[0].at) > keepRecord {
		f.table.Forget(f.records[0].attempt)
		f.records = f.records[1:]
	}
	for id, fam := range f.families {
		if fam.live == 0 && now.After(fam.forget) {
			delete(f.families, id)
		}
	}
	for ref, r := range f.refusals {
		if now.Sub(r.at) > refusalKept {
			delete(f.refusals, ref)
		}
	}
}
