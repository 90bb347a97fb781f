package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/memledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/check"
	"github.com/surehand/surehand/transferd/fence"
)

// What every run has.
const (
	model        = "tiny"
	revision     = "r1"
	promptTokens = 32
	maxSteps     = 40_000 // deliveries; more is a livelock
	longs        = 3      // of each four seeds: its long steps are normal activities
	deadline     = 10 * time.Second
)

// Case is one run: a seed, which decides every interleaving, and faults in the
// order in which they strike.
type Case struct {
	Seed    uint64
	Strikes []Strike
	Plant   string // a bug that the checks must find; empty: none
	Verbose bool   // each delivery in the transcript
}

// Strike is a fault at a point: the first message of that name that is about to
// arrive once the strikes before it have struck.
type Strike struct{ Fault, Point string }

func (x Strike) String() string { return x.Fault + " at " + x.Point }

func (c Case) String() string {
	parts := []string{fmt.Sprintf("seed=%d", c.Seed)}
	for _, x := range c.Strikes {
		parts = append(parts, x.String())
	}
	return strings.Join(parts, "; ")
}

// Report is what a run came to.
type Report struct {
	Case       Case
	Violations []string
	Transcript []string
	Points     []string // reached, in the order of their first arrival
	After      []After  // the same, since the last strike
	Struck     int
	Steps      int
	Outcome    string // of the workflow
	Client     string // what the client has
	Reached    map[string]int
	owners     *check.Log
}

// After is a point that is still reached once the last strike has struck: where
// one more may strike, and which would change nothing there.
type After struct {
	Point string
	Idle  []string // faults
}

// Failed says whether anything broke.
func (r Report) Failed() bool { return len(r.Violations) > 0 }

// Sim is one run under way.
type Sim struct {
	c     Case
	rng   *rand.Rand
	lease time.Duration
	start time.Time
	more  chan struct{}

	mu     sync.Mutex
	under  []*message
	seq    int
	closed bool
	lives  map[string]*life
	lanes  map[*lane]bool
	out    Report
	seen   map[string]bool
	after  map[string]bool // seen since the last strike
	trace  handoff.Trace
	timers []timer
	told   map[handoff.Attempt]bool // answered closed by TD, for good
	late   map[handoff.Attempt]bool // planned after the cancel was recorded
	owners check.Log                // what daemons were asked and answered
	skew   time.Duration            // of the ledger's clock
	moved  bool                     // the ledger was asked, or set, since it was looked at

	held   map[string]time.Time // paused processes
	cut    map[string]time.Time // one-way partitions, from>to
	slow   time.Duration        // added to each frame between daemons
	struck int
	borne  time.Duration // of standing still, that a client waits through

	hosts    map[string]*host
	ledger   *memledger.Ledger
	gateways map[string]*gateway
	history  *history
	client   *client
}

type timer struct {
	at time.Time
	fn func()
}

// Run runs one case in virtual time.
func Run(t *testing.T, c Case) (out Report) {
	t.Helper()
	activityContext() // outside: every run has it
	synctest.Test(t, func(*testing.T) {
		s := newSim(c)
		s.run()
		out = s.out
		out.owners = &s.owners
	})
	if !out.owners.Judge(check.Ownership, patience) {
		out.Violations = append(out.Violations, "S2: no order of what the daemons answered is one that the protocol allows")
	}
	return out
}

func newSim(c Case) *Sim {
	s := &Sim{c: c, rng: rand.New(rand.NewPCG(c.Seed, 0x5eed)), lease: handoff.LeaseDefault, start: time.Now(), more: make(chan struct{}, 1),
		lives: map[string]*life{}, lanes: map[*lane]bool{}, seen: map[string]bool{}, after: map[string]bool{}, told: map[handoff.Attempt]bool{}, late: map[handoff.Attempt]bool{},
		held: map[string]time.Time{}, cut: map[string]time.Time{}, hosts: map[string]*host{}, gateways: map[string]*gateway{}}
	s.out.Case, s.out.Reached = c, map[string]int{}
	s.ledger = memledger.New(func() handoff.Instant {
		s.mu.Lock()
		defer s.mu.Unlock()
		return time.Since(s.start) + s.skew
	})
	s.newLife("r", 1)
	s.newLife("h", 1)
	for _, n := range []string{"p", "p1", "d0", "d1", "d2"} {
		s.hosts[n] = newHost(s, n)
		s.register(s.hosts[n])
	}
	s.history = newHistory(s)
	for _, n := range []string{"g0", "g1"} {
		s.gateways[n] = newGateway(s, n, 1)
	}
	s.client = newClient(s)
	return s
}

func (s *Sim) newLife(name string, i handoff.Incarnation) *life {
	l := &life{name: name, incarnation: i}
	l.ctx, l.end = context.WithCancel(context.Background())
	s.mu.Lock()
	s.lives[name] = l
	s.mu.Unlock()
	return l
}

// lifeOf is the living life of a process, nil when nobody listens there.
func (s *Sim) lifeOf(name string) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lives[name]; l != nil && !l.dead() {
		return l
	}
	return nil
}

// register announces an engine and rebuilds the ledger from what its daemon holds.
func (s *Sim) register(h *host) {
	id := handoff.EngineID(h.engine.life.name)
	layout := layoutOf
	e := ledger.Engine{ID: id, Role: ledger.RoleBoth, Model: model, Revision: revision, Layout: layout[:], Node: handoff.NodeID(h.name),
		NodeIncarnation: h.lives, ProcessIncarnation: h.engine.life.incarnation, Address: h.engine.life.name, Control: h.name, Peer: h.name,
		Blocks: blocks, BlockTokens: 16, MaxTokens: 1 << 16}
	s.mu.Lock()
	s.moved = true
	s.mu.Unlock()
	s.must(s.ledger.Register(context.Background(), e, time.Hour), "register")
	held := map[handoff.Attempt]uint32{}
	targets, _ := h.core().Records(1 << 10)
	for _, t := range targets {
		if !t.Freed {
			held[t.Plan.Attempt] = pieces
		}
	}
	s.must(s.ledger.Rebuild(context.Background(), ledger.RebuildRequest{Engine: id, Incarnation: h.lives, Total: blocks, Held: held, Lease: s.lease}), "rebuild")
}

// later runs fn from the scheduler, between two instants.
func (s *Sim) later(d time.Duration, fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timers = append(s.timers, timer{time.Now().Add(d), fn})
}

// run is the scheduler: whenever nothing runs, it checks the state, lets one
// message arrive, or time pass.
func (s *Sim) run() {
	go s.client.run()
	rested := time.Time{}
	for {
		synctest.Wait()
		now := time.Now()
		s.due(now)
		synctest.Wait()
		s.check(false)
		if s.out.Steps > maxSteps {
			s.violate("L1: no end after %d deliveries", maxSteps)
			break
		}
		if s.client.isOver() && s.history.isOver() {
			if rested.IsZero() {
				rested = now.Add(restTime)
				s.heal()
			}
			if now.After(rested) {
				break
			}
		}
		if now.Sub(s.start) > runTime {
			s.violate("L1: after %s the client has %s and the handoff is %s", runTime, s.client, s.history)
			break
		}
		wait := time.Second
		if !rested.IsZero() {
			wait = restLook
		}
		s.deliver(now, wait)
	}
	s.rest()
	s.finish()
}

// patience of porcupine with one run's history, which is some twenty operations.
const patience = 10 * time.Second

const (
	restTime = 60 * time.Second // past every lease and background repeat
	restLook = 5 * time.Second  // so often it is looked at meanwhile, if nothing arrives
	runTime  = 20 * time.Minute // past the parking of undo steps
	jitter   = 3 * time.Millisecond
)

func (s *Sim) due(now time.Time) {
	s.mu.Lock()
	var fire []func()
	s.timers = slices.DeleteFunc(s.timers, func(t timer) bool {
		if t.at.After(now) {
			return false
		}
		fire = append(fire, t.fn)
		return true
	})
	s.moved = s.moved || len(fire) > 0
	s.mu.Unlock()
	for _, f := range fire {
		f()
	}
}

// deliver picks one message, or waits for the next instant at which one may arrive,
// at most so long.
func (s *Sim) deliver(now time.Time, wait time.Duration) {
	s.mu.Lock()
	ms, next := s.deliverable(now)
	for _, t := range s.timers {
		if next.IsZero() || t.at.Before(next) {
			next = t.at
		}
	}
	s.mu.Unlock()
	if len(ms) == 0 {
		if !next.IsZero() {
			wait = min(wait, max(next.Sub(now), time.Microsecond))
		}
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-s.more:
		case <-t.C:
		}
		return
	}
	if s.rng.IntN(6) == 0 {
		time.Sleep(time.Duration(s.rng.Int64N(int64(jitter))))
		return
	}
	m := ms[s.rng.IntN(len(ms))]
	s.arrive(m, now)
}

// arrive lets the strikes have a look at the message, then it is there.
func (s *Sim) arrive(m *message, now time.Time) {
	s.out.Steps++
	s.moved = s.moved || m.to == "r"
	if !s.seen[m.point] {
		s.seen[m.point] = true
		s.out.Points = append(s.out.Points, m.point)
	}
	if s.struck == len(s.c.Strikes) && !s.after[m.point] {
		s.after[m.point] = true
		s.out.After = append(s.out.After, After{m.point, s.idle(m)})
	}
	if s.struck < len(s.c.Strikes) && s.c.Strikes[s.struck].Point == m.point {
		x := s.c.Strikes[s.struck]
		s.struck++
		s.out.Struck++
		s.moved = true
		s.say("fault %s", x)
		faults[x.Fault].inject(s, m)
		if m.due.After(now) || m.fate == nil {
			return
		}
		synctest.Wait()
	}
	if until, ok := s.held[m.from]; ok && until.After(now) {
		return
	}
	s.mu.Lock()
	s.under = slices.DeleteFunc(s.under, func(o *message) bool { return o == m })
	s.mu.Unlock()
	if m.local && m.decided == lost {
		m.decided = arrives
	}
	if s.c.Verbose {
		s.say("%s  %s", now.Sub(s.start), m)
	}
	m.fate <- m.decided
}

// heal ends every fault that has not ended by itself.
func (s *Sim) heal() {
	clear(s.held)
	clear(s.cut)
	s.slow = 0
	for _, h := range s.hosts {
		h.engine.mem.FailWrites(nil)
	}
}

// finish ends every process, so that nothing is left running.
func (s *Sim) finish() {
	s.mu.Lock()
	s.closed = true
	under := s.under
	s.under = nil
	lives := s.lives
	s.mu.Unlock()
	for _, l := range lives {
		l.end()
	}
	for _, m := range under {
		m.fate <- lost
	}
	s.history.stop()
	for _, g := range s.gateways {
		g.stop()
	}
	for _, h := range s.hosts {
		h.core().Stop()
	}
	s.mu.Lock()
	for l := range s.lanes {
		l.cutOff()
	}
	s.mu.Unlock()
	s.out.Outcome, s.out.Client = s.history.String(), s.client.String()
	time.Sleep(runTime) // whatever waits by the clock ends too
}

func (s *Sim) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Transcript = append(s.out.Transcript, fmt.Sprintf(format, args...))
}

// violate notes what must never be.
func (s *Sim) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.out.Violations, v) && len(s.out.Violations) < 20 {
		s.out.Violations = append(s.out.Violations, v)
		s.out.Transcript = append(s.out.Transcript, "VIOLATED "+v)
	}
}

func (s *Sim) reached(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Reached[name]++
}

// must is for what the simulation itself cannot go on without.
func (s *Sim) must(err error, what string) {
	if err != nil {
		s.violate("simulation: %s: %v", what, err)
	}
}

func name(a handoff.Attempt) string { return fmt.Sprintf("e%d", a.Epoch) }

// traced checks one event of a daemon against the transition table as it happens.
func (s *Sim) traced(l *life, e fence.Event) {
	if l.dead() {
		return // its last words reach nobody
	}
	s.mu.Lock()
	var err error
	code := ""
	if e.Code != handoff.CodeNone {
		code = e.Code.String()
	}
	err = s.trace.Add(handoff.TraceEvent{Node: handoff.NodeID(l.name), Incarnation: l.incarnation, Machine: e.Machine, Attempt: e.Attempt, Event: e.Name, From: e.From, To: e.To, Code: code})
	s.mu.Unlock()
	if err != nil {
		s.violate("trace: %v", err)
	}
	switch {
	case code != "" && e.Name == "renew": // once a lease share, of everything that is over
	case code != "":
		s.say("%s %s %s: refused %s, stays %s", l.name, name(e.Attempt), e.Name, code, e.To)
	case e.From == e.To:
		s.say("%s %s %s: %s", l.name, name(e.Attempt), e.Name, e.To)
	default:
		s.say("%s %s %s: %s -> %s", l.name, name(e.Attempt), e.Name, e.From, e.To)
	}
}

// lane notes a connection between daemons, or its end.
func (s *Sim) lane(l *lane, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.lanes[l] = true
	} else {
		delete(s.lanes, l)
	}
}

// reading says whether somebody looks at an attempt's source at a host now.
func (s *Sim) reading(at string, a handoff.Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.lanes {
		l.mu.Lock()
		n := l.reads
		l.mu.Unlock()
		if l.at.name == at && l.attempt == a && n > 0 {
			return true
		}
	}
	return false
}

// cutReads ends the connections of a daemon that died.
func (s *Sim) cutReads(at string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.lanes {
		if l.at.name == at || l.d.life.name == at {
			l.cutOff()
		}
	}
}

// Text is the transcript, a line an event.
func (r Report) Text() string { return strings.Join(r.Transcript, "\n") + "\n" }
