package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// fault is one thing that goes wrong, once, as a message is about to arrive.
type fault struct {
	name   string
	about  string
	inject func(*Sim, *message)
}

var faults = map[string]fault{}

// Faults lists the names of all faults.
func Faults() []string {
	out := make([]string, 0, len(faults))
	for n := range faults {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// About says what a fault does.
func About(name string) string { return faults[name].about }

func add(name, about string, inject func(*Sim, *message)) {
	faults[name] = fault{name, about, inject}
}

const (
	pastLease = 8 * time.Second // and past every budget
	aWhile    = 3 * time.Second
)

func init() {
	add("lose", "this message is lost: its sender sees a broken connection", func(_ *Sim, m *message) { m.decided = lost })
	add("twice", "this message arrives twice", func(_ *Sim, m *message) { m.decided = twice })
	add("delay", "this message takes 300 ms", func(_ *Sim, m *message) { m.due = time.Now().Add(300 * time.Millisecond) })
	add("late", "this message comes after its asker's budget", func(_ *Sim, m *message) { m.due = time.Now().Add(1500 * time.Millisecond) })
	add("stale", "this message comes after every lease has ended", func(s *Sim, m *message) { m.due = time.Now().Add(pastLease); s.bear(pastLease) })
	add("overtake", "everything else that is under way comes first", func(s *Sim, m *message) { m.due = time.Now().Add(10 * time.Millisecond) })
	add("corrupt", "a byte flips on the way", func(_ *Sim, m *message) {
		if m.damage != nil {
			m.damage()
		}
	})
	add("corrupt-source", "a byte flips in P's memory", func(s *Sim, _ *message) { s.rot("p") })
	add("cut-ask", "no message passes this way for 3 s", func(s *Sim, m *message) { s.cutFor(m.from, m.to, aWhile) })
	add("cut-both", "no message passes either way for 8 s", func(s *Sim, m *message) {
		s.cutFor(m.from, m.to, pastLease)
		s.cutFor(m.to, m.from, pastLease)
	})
	add("cut-P-D", "P and D cannot reach each other for 3 s", func(s *Sim, _ *message) {
		s.cutFor("p", "d0", aWhile)
		s.cutFor("d0", "p", aWhile)
	})
	for _, n := range []string{"g0", "d0", "p", "d0.engine", "p.engine", "r", "h"} {
		add("pause-"+n, n+" stands still for 8 s, past the lease", func(s *Sim, m *message) { s.pause(n, pastLease) })
	}
	add("isolate-g0", "the gateway and its worker reach nobody for 8 s", func(s *Sim, _ *message) {
		for _, n := range []string{"d0", "d0.engine", "p", "p.engine", "d1", "d1.engine", "r", "h", "g1"} {
			s.cutFor("g0", n, pastLease)
			s.cutFor(n, "g0", pastLease)
		}
	})
	add("pause-d0-short", "d0 stands still for 3 s", func(s *Sim, _ *message) { s.pause("d0", aWhile) })
	add("pause-D-host", "D's engine and daemon stand still for 8 s", func(s *Sim, _ *message) {
		s.pause("d0", pastLease)
		s.pause("d0.engine", pastLease)
	})
	add("kill-g0", "the gateway and its worker die; another life begins at the same address", func(s *Sim, _ *message) { s.killGateway("g0") })
	add("kill-g1", "the other gateway and its worker die", func(s *Sim, _ *message) { s.killGateway("g1") })
	for _, n := range []string{"p", "d0", "d1"} {
		add("restart-"+n, "the daemon "+n+" dies and comes again; its engine lives", func(s *Sim, _ *message) {
			if !s.hosts[n].daemon.dead() {
				s.hosts[n].restartDaemon()
			}
		})
		add("restart-"+n+".engine", "the engine of "+n+" dies and comes again; its daemon lives", func(s *Sim, _ *message) {
			if !s.hosts[n].engine.life.dead() {
				s.hosts[n].restartEngine()
			}
		})
		add("restart-host-"+n, "the host "+n+" dies and comes again", func(s *Sim, _ *message) {
			if h := s.hosts[n]; !h.engine.life.dead() && !h.daemon.dead() {
				h.restartBoth()
			}
		})
	}
	add("empty-ledger", "the ledger loses everything, and is rebuilt from the daemons a little later", func(s *Sim, _ *message) { s.emptyLedger() })
	add("skew-ledger", "the ledger's clock jumps ahead by a lease", func(s *Sim, _ *message) {
		s.mu.Lock()
		s.skew += s.lease
		s.mu.Unlock()
	})
	add("full-D", "D has no blocks for anybody else", func(s *Sim, _ *message) { s.hosts["d0"].engine.full = true })
	add("wrong-revision", "D serves another revision than it announced", func(s *Sim, _ *message) { s.hosts["d0"].engine.revision = "r2" })
	add("disk-full", "D's daemon cannot write into its memory", func(s *Sim, _ *message) {
		s.hosts["d0"].engine.mem.FailWrites(handoff.Errorf(handoff.CodeCapacity, "no space"))
	})
	add("preempt", "P's engine drops what it has computed", func(s *Sim, _ *message) { s.preempt("p") })
	add("slow-link", "each frame between daemons takes 150 ms", func(s *Sim, _ *message) { s.slow = 150 * time.Millisecond })
	add("cancel", "the client cancels", func(s *Sim, _ *message) { s.client.leave() })
	add("come-again", "the client drops its connection and asks through the other gateway", func(s *Sim, _ *message) { s.client.comeAgain() })
	add("reset", "the worker's next execution is a reset run", func(s *Sim, _ *message) { s.history.reset.Store(true) })
}

// idle lists the faults that would change nothing if they struck at a message now.
func (s *Sim) idle(m *message) (out []string) {
	for name, nothing := range map[string]bool{
		"lose":              m.local,
		"corrupt":           m.damage == nil,
		"corrupt-source":    !s.lends("p"),
		"preempt":           !s.lends("p"),
		"kill-g0":           s.gateways["g0"].life.dead(),
		"kill-g1":           s.gateways["g1"].life.dead(),
		"restart-d0":        s.hosts["d0"].daemon.dead(),
		"restart-p":         s.hosts["p"].daemon.dead(),
		"restart-host-d0":   s.hosts["d0"].daemon.dead() || s.hosts["d0"].engine.life.dead(),
		"restart-d0.engine": s.hosts["d0"].engine.life.dead(),
	} {
		if nothing {
			out = append(out, name)
		}
	}
	return out
}

// lends says whether a host has computed something that may still be read.
func (s *Sim) lends(at string) bool {
	for _, p := range s.hosts[at].engine.sources {
		if p.blocks != nil && !p.closed {
			return true
		}
	}
	return false
}

// bear adds time that a client has to wait through.
func (s *Sim) bear(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.borne += d
}

func (s *Sim) pause(name string, d time.Duration) {
	s.bear(d)
	s.held[name] = time.Now().Add(d)
	s.reached("a process stood still past its lease")
}

func (s *Sim) cutFor(from, to string, d time.Duration) {
	if len(s.cut) == 0 {
		s.bear(d)
	}
	s.cut[from+">"+to] = time.Now().Add(d)
}

// rot flips a byte of what was computed at a host and may still be read.
func (s *Sim) rot(at string) {
	e := s.hosts[at].engine
	for _, p := range e.sources {
		if p.blocks != nil && !p.closed {
			x := e.mem.Get(uint64(p.blocks[0])*blockBytes+7, 1)
			e.mem.Put(uint64(p.blocks[0])*blockBytes+7, []byte{x[0] ^ 1})
		}
	}
}

func (s *Sim) preempt(at string) {
	h := s.hosts[at]
	if h.daemon.dead() || h.engine.att == nil {
		return
	}
	for a, p := range h.engine.sources {
		if p.blocks != nil && !p.closed {
			_ = h.core().CloseSource(h.engine.att, a, handoff.CodeEngine)
		}
	}
}

func (s *Sim) emptyLedger() {
	s.ledger.Empty()
	s.reached("the ledger was rebuilt from the daemons")
	s.later(500*time.Millisecond, func() {
		for _, h := range s.hosts {
			if !h.daemon.dead() && !h.engine.life.dead() {
				s.register(h)
			}
		}
	})
}

func (s *Sim) killGateway(name string) {
	g := s.gateways[name]
	if g.life.dead() {
		return
	}
	g.stop()
	s.later(time.Second, func() {
		s.gateways[name] = newGateway(s, name, g.life.incarnation+1)
	})
}

// ParseStrike reads "fault at point".
func ParseStrike(text string) (Strike, error) {
	f, p, ok := strings.Cut(text, " at ")
	if _, known := faults[f]; !ok || !known {
		return Strike{}, fmt.Errorf("%q is not \"fault at point\" with a known fault", text)
	}
	return Strike{f, p}, nil
}

// ParseCase reads strikes apart by semicolons.
func ParseCase(seed uint64, text string) (Case, error) {
	c := Case{Seed: seed}
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		x, err := ParseStrike(part)
		if err != nil {
			return c, err
		}
		c.Strikes = append(c.Strikes, x)
	}
	return c, nil
}
