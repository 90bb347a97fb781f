package daemon_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// relay passes bytes between whoever dials it and one daemon, and counts
// connections, so that a test sees what TD dials.
type relay struct {
	net.Listener
	mu     sync.Mutex
	dialed int
	open   map[net.Conn]net.Conn
	kept   chan struct{} // until it is closed pieces are kept back; nil: they pass
	wg     sync.WaitGroup
}

func newRelay(t *testing.T, to func() string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := &relay{Listener: l, open: map[net.Conn]net.Conn{}}
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to())
			if err != nil {
				_ = c.Close()
				continue
			}
			r.mu.Lock()
			r.dialed++
			r.open[c] = up
			r.mu.Unlock()
			r.wg.Go(func() { r.pass(c, up) })
			r.wg.Go(func() { r.pass(up, keeper{c, r}) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.let()
		r.cut()
		r.wg.Wait()
	})
	return r
}

// keep holds back the daemon's pieces from now on, let passes them on. News and
// answers, which are small, pass.
func (r *relay) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = make(chan struct{})
}

func (r *relay) let() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != nil {
		close(r.kept)
		r.kept = nil
	}
}

type keeper struct {
	net.Conn
	r *relay
}

func (k keeper) Write(b []byte) (int, error) {
	k.r.mu.Lock()
	kept := k.r.kept
	k.r.mu.Unlock()
	if kept != nil && len(b) >= blockBytes/2 {
		<-kept
	}
	return k.Conn.Write(b)
}

func (r *relay) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, from)
	delete(r.open, to)
}

// cut breaks every connection.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c, up := range r.open {
		_ = c.Close()
		_ = up.Close()
	}
}

func (r *relay) counts() (dialed, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialed, len(r.open)
}

// through pulls by way of the relay.
func (m *move) through(r *relay) error {
	spec := m.spec()
	spec.SourceAddress = r.Addr().String()
	_, err := m.dh.control.Pull(background(m.t), spec, nil)
	return err
}

// whole is one handoff from open to freed, after which nothing of it is held.
func (m *move) whole(r *relay) {
	m.t.Helper()
	m.ready()
	check(m.t, m.through(r))
	if !m.isEqual() {
		m.t.Fatal("bytes differ")
	}
	_, err := m.commit()
	check(m.t, err)
	m.p.await(m.t, client.SourceDrained, m.plan.Attempt)
	check(m.t, m.p.Freed(background(m.t), m.plan.Attempt, true))
	check(m.t, m.d.FinishTarget(background(m.t), m.plan.Attempt))
	m.d.await(m.t, client.TargetDrained, m.plan.Attempt)
	check(m.t, m.d.Freed(background(m.t), m.plan.Attempt, false))
}

// settled waits until the finished pull has put its connection back.
func settled(t *testing.T, h *host) {
	t.Helper()
	eventually(t, "no pull runs", func() bool { return h.Pulling() == 0 })
}

func TestPullsOneAfterTheOtherUseOneConnection(t *testing.T) {
	ph, p, dh, d := pair(t)
	r := newRelay(t, ph.PeerAddress)
	for range 10 {
		newMove(t, ph, p, dh, d).whole(r)
		settled(t, dh)
	}
	if dialed, open := r.counts(); dialed != 1 || open != 1 {
		t.Fatalf("%d connections dialled, %d open", dialed, open)
	}
}

func TestARevokedPullDestroysItsConnectionAndNoOther(t *testing.T) {
	ph, p, dh, d := pair(t)
	r := newRelay(t, ph.PeerAddress)
	stays, goes := newMove(t, ph, p, dh, d), newMove(t, ph, p, dh, d)
	errs := map[*move]chan error{}
	for _, m := range []*move{stays, goes} {
		m.open()
		m.announce(0)
		errs[m] = make(chan error, 1)
		go func() { errs[m] <- m.through(r) }()
	}
	eventually(t, "two connections", func() bool { _, open := r.counts(); return open == 2 })
	_, err := ph.control.Undo(background(t), goes.plan, goes.plan.Attempt.Operation("revoke"), client.Sides{Source: true})
	check(t, err)
	if err := <-errs[goes]; err == nil {
		t.Fatal("a revoked source was read")
	}
	goes.p.await(t, client.SourceDrained, goes.plan.Attempt)
	goes.d.await(t, client.TargetDrained, goes.plan.Attempt)
	eventually(t, "one connection is gone", func() bool { _, open := r.counts(); return open == 1 })
	for i := uint32(1); i < shape.Pieces(); i++ {
		stays.announce(i)
	}
	check(t, stays.seal())
	check(t, <-errs[stays])
	settled(t, dh)
	if _, open := r.counts(); open != 1 {
		t.Fatalf("%d connections open", open)
	}
}

func TestAKeptConnectionThatBrokeCostsADial(t *testing.T) {
	ph, p, dh, d := pair(t)
	r := newRelay(t, ph.PeerAddress)
	newMove(t, ph, p, dh, d).whole(r)
	settled(t, dh)
	r.cut()
	eventually(t, "it is broken", func() bool { _, open := r.counts(); return open == 0 })
	newMove(t, ph, p, dh, d).whole(r)
	if dialed, _ := r.counts(); dialed != 2 {
		t.Fatalf("%d connections dialled", dialed)
	}
}

// lightseekorg/smg#2382: D is replaced on one port again and again; P recovers each
// time without a restart.
func TestADReplacedOnOnePortPoisonsNobody(t *testing.T) {
	ph := startHost(t, "tp")
	p := attach(t, ph.cfg.EngineSocket, "p1")
	dh := startHost(t, "td")
	r := newRelay(t, ph.PeerAddress)
	for range 20 {
		d := attach(t, dh.cfg.EngineSocket, "d1")
		newMove(t, ph, p, dh, d).whole(r)
		d.die(t)
		dh.restart(t)
	}
}

// vllm-project/vllm#49238, ai-dynamo/nixl#1986, #2051: P comes back under its old name and port. A plan of the life
// before is refused by it, a new one succeeds, and D's kept connections to the
// old life are of no harm.
func TestAPReplacedOnOnePortRefusesTheLifeBefore(t *testing.T) {
	ph, p, dh, d := pair(t)
	r := newRelay(t, ph.PeerAddress)
	newMove(t, ph, p, dh, d).whole(r)
	settled(t, dh)
	old := newMove(t, ph, p, dh, d)
	old.ready()
	ph.restart(t)
	eventually(t, "P attached again", func() bool { return p.Incarnation() == ph.Incarnation() })
	wantCode(t, old.through(r), handoff.CodeStaleIncarnation)
	newMove(t, ph, p, dh, d).whole(r)
}

// kvcache-ai/Mooncake#3299, #397: what P refused it would refuse again. The pull
// ends with it, after one connection, and the rail to P stays good.
func TestAnErrorThatWouldRepeatIsNotMetWithReconnects(t *testing.T) {
	ph, p, dh, d := pair(t)
	r := newRelay(t, ph.PeerAddress)
	for name, refused := range map[string]func(m *move){
		"a forged capability": func(m *move) { m.capability[len(m.capability)-1] ^= 1 },
		"a closed source":     func(m *move) { check(t, p.CloseSource(background(t), m.plan.Attempt, handoff.CodeEngine)) },
	} {
		before, _ := r.counts()
		m := newMove(t, ph, p, dh, d)
		m.ready()
		refused(m)
		if err := m.through(r); handoff.CodeOf(err).Advice() == handoff.RetrySame {
			t.Fatalf("%s: %v", name, err)
		}
		if dialed, _ := r.counts(); dialed != before+1 {
			t.Errorf("%s: %d connections", name, dialed-before)
		}
	}
	newMove(t, ph, p, dh, d).whole(r)
}
