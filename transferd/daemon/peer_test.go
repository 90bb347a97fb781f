package daemon_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/client"
)

// peer speaks the frames of the peer side by hand.

type peer struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, h *host) *peer {
	t.Helper()
	c, err := net.Dial("tcp", h.PeerAddress())
	check(t, err)
	check(t, c.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { _ = c.Close() })
	return &peer{t, c}
}

func (p *peer) send(frame []byte) {
	p.t.Helper()
	if _, err := p.Write(frame); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) next() (wire.Kind, []byte) {
	p.t.Helper()
	head := make([]byte, wire.HeaderBytes)
	if _, err := readFull(p, head); err != nil {
		p.t.Fatal(err)
	}
	h, err := wire.ParseHeader(head)
	check(p.t, err)
	b := make([]byte, h.Length)
	if _, err := readFull(p, b); err != nil {
		p.t.Fatal(err)
	}
	return h.Kind, b
}

func readFull(c net.Conn, b []byte) (int, error) {
	got := 0
	for got < len(b) {
		n, err := c.Read(b[got:])
		if err != nil {
			return got, err
		}
		got += n
	}
	return got, nil
}

func (p *peer) refusal() handoff.Code {
	p.t.Helper()
	for {
		k, b := p.next()
		if k == wire.KindError {
			e, err := wire.ParseError(b)
			check(p.t, err)
			return e.Code
		}
	}
}

func (p *peer) hello(from handoff.NodeID, life handoff.Incarnation, h *host) {
	p.send(wire.AppendHello(nil, wire.Hello{From: from, FromIncarnation: life, To: h.cfg.Node, ToIncarnation: h.Incarnation()}))
}

// greet answers whoever calls as the daemon that it means.
func (p *peer) greet() {
	p.t.Helper()
	_, b := p.next()
	hello, err := wire.ParseHello(b)
	check(p.t, err)
	p.send(wire.AppendHelloOK(nil, wire.HelloOK{Node: hello.To, Incarnation: hello.ToIncarnation}))
}

func TestAStolenCapabilityIsRefused(t *testing.T) {
	m := newPair(t)
	m.ready()
	thief := dial(t, m.ph)
	thief.hello("thief", 1, m.ph)
	thief.send(wire.AppendPull(nil, wire.Pull{Attempt: m.plan.Attempt, Capability: m.capability}))
	if code := thief.refusal(); code != handoff.CodeDenied {
		t.Fatal(code)
	}
	older := dial(t, m.ph) // the right node in another life
	older.hello("td", 9, m.ph)
	older.send(wire.AppendPull(nil, wire.Pull{Attempt: m.plan.Attempt, Capability: m.capability}))
	if code := older.refusal(); code != handoff.CodeStaleIncarnation {
		t.Fatal(code)
	}
	forged := append([]byte(nil), m.capability...)
	forged[len(forged)-1] ^= 1
	m.capability = forged
	_, err := m.pull()
	wantCode(t, err, handoff.CodeDenied)
}

// vllm-project/vllm#27083: a greeting that means another daemon, or another life
// of this one, is refused before anything is granted.
func TestTheWrongDaemonOnTheRightPortIsRefused(t *testing.T) {
	h := startHost(t, "tp")
	c := dial(t, h)
	c.send(wire.AppendHello(nil, wire.Hello{From: "td", FromIncarnation: 1, To: "another", ToIncarnation: 1}))
	if code := c.refusal(); code != handoff.CodeStaleIncarnation {
		t.Fatal(code)
	}
	for _, life := range []handoff.Incarnation{0, h.Incarnation() + 1, ^handoff.Incarnation(0)} {
		c := dial(t, h)
		c.send(wire.AppendHello(nil, wire.Hello{From: "td", FromIncarnation: 1, To: "tp", ToIncarnation: life}))
		if code := c.refusal(); code != handoff.CodeStaleIncarnation {
			t.Fatalf("life %d: %s", life, code)
		}
	}
}

// kvcache-ai/Mooncake#2850, #2086: a request for what may not be read is refused
// in so many words; the receiver's own state says what landed.
func TestOnlyAnnouncedPiecesOfTheCapabilityAreServed(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(2)
	for _, run := range []wire.Run{{First: 1, Count: 1}, {First: 2, Count: 2}, {First: 0, Count: shape.Pieces() + 1}} {
		c := dial(t, m.ph)
		c.hello("td", m.dh.Incarnation(), m.ph)
		c.send(wire.AppendPull(nil, wire.Pull{Attempt: m.plan.Attempt, Capability: m.capability}))
		c.send(wire.AppendRuns(nil, wire.KindRead, []wire.Run{run}))
		if run.First == 0 { // out of range: the request itself is nonsense, the connection ends
			if _, err := readAll(c); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if code := c.refusal(); code != handoff.CodeNotReady {
			t.Fatal(code)
		}
	}
}

func readAll(c net.Conn) (int, error) {
	total := 0
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		total += n
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				return total, err
			}
			return total, nil
		}
	}
}

func TestFrameBombsEndTheConnectionAndNothingElse(t *testing.T) {
	m := newPair(t)
	for _, bomb := range [][]byte{
		wire.AppendHeader(nil, wire.KindData, 1<<31),
		wire.AppendHeader(nil, wire.KindSealed, 8<<20), // within its bound, but not what may come first
		bytes.Repeat([]byte{0xff}, wire.HeaderBytes),
		[]byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		c := dial(t, m.ph)
		c.send(bomb)
		if _, err := readAll(c); err != nil {
			t.Fatal(err)
		}
	}
	m.ready()
	_, err := m.pull()
	check(t, err)
}

func TestAStalledReaderHoldsTheSourceNoLongerThanItsLease(t *testing.T) {
	t.Parallel()
	m := newPair(t, lease(shortLease))
	m.ready()
	c := dial(t, m.ph) // a reader that is stopped: it neither reads nor pings nor leaves
	c.hello("td", m.dh.Incarnation(), m.ph)
	c.send(wire.AppendPull(nil, wire.Pull{Attempt: m.plan.Attempt, Capability: m.capability}))
	c.send(wire.AppendRuns(nil, wire.KindRead, []wire.Run{{First: 0, Count: shape.Pieces()}}))
	e := m.p.await(t, client.SourceClosed, m.plan.Attempt)
	if e.Cause != handoff.CodeLease {
		t.Fatalf("%+v", e)
	}
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
}

func TestAStalledSourceFailsTheProgressDeadline(t *testing.T) {
	m := newPair(t, hasty)
	m.open()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = l.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		p := &peer{t, c}
		p.greet()
		p.next()
		p.send(wire.AppendSource(nil, wire.Source{Grant: 1, State: handoff.SourceOpened, Shape: shape}))
		p.send(wire.AppendRuns(nil, wire.KindReady, []wire.Run{{First: 0, Count: 1}}))
		_, _ = readAll(c)
	})
	spec := m.spec()
	spec.SourceAddress = l.Addr().String()
	_, err = m.dh.control.Pull(background(t), spec, nil)
	wantCode(t, err, handoff.CodeProgress)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	_ = l.Close()
}

// sgl-project/sglang#24527: D gives up in the middle of a piece. Its blocks are
// drained once nothing can write them; the next request's bytes stay as they are.
func TestNoByteLandsAfterTheTargetIsDrained(t *testing.T) {
	m := newPair(t)
	check(t, m.openTarget())
	rest := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(rest) })
	address, half, wait := lateSource(t, rest)
	defer wait()
	defer goOn()
	pulled := make(chan error, 1)
	go func() {
		_, err := m.dh.control.Pull(background(t), client.PullSpec{Plan: m.plan, Token: m.token, SourceAddress: address, ProgressDeadline: patience}, nil)
		pulled <- err
	}()
	<-half
	eventually(t, "half a piece is in the memory", func() bool { return m.target(0)[0] == 0xee })
	d, err := m.dh.control.Describe(background(t), true)
	check(t, err)
	if d.GetTargets()[0].GetPosted() != 1 {
		t.Fatalf("%v", d)
	}
	_, err = m.undo()
	check(t, err)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	check(t, m.d.Freed(background(t), m.plan.Attempt, false))
	next := bytes.Repeat([]byte{0x55}, blockBytes) // the next request's block
	copy(m.target(0), next)
	goOn()
	wantCode(t, <-pulled, handoff.CodeClosed)
	eventuallyAfter(t, 50*time.Millisecond)
	if !bytes.Equal(m.target(0), next) {
		t.Fatal("a late byte landed in the next request's block")
	}
}

// kvcache-ai/Mooncake#4247: the source stands still in the middle of a piece, and
// the caller is told that the deadline passed. From then on no byte of the target
// changes, although the source goes on with everything that it was asked for.
func TestALateByteAfterADeadlineNeverLands(t *testing.T) {
	m := newPair(t, hasty)
	check(t, m.openTarget())
	rest := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(rest) })
	address, half, wait := lateSource(t, rest)
	defer wait()
	defer goOn()
	_, err := m.dh.control.Pull(background(t), client.PullSpec{Plan: m.plan, Token: m.token, SourceAddress: address}, nil)
	wantCode(t, err, handoff.CodeProgress)
	<-half
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	next := bytes.Repeat([]byte{0x55}, blockBytes) // whoever was told writes there again
	copy(m.target(0), next)
	goOn()
	eventuallyAfter(t, watch)
	if !bytes.Equal(m.target(0), next) {
		t.Fatal("a byte landed after the caller was told")
	}
	check(t, m.d.Freed(background(t), m.plan.Attempt, false))
}

func TestAByteThatFlipsOnTheWireIsReadAgain(t *testing.T) {
	m := newPair(t)
	check(t, m.openTarget())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = l.Close() }()
	good := bytes.Repeat([]byte{0xaa}, blockBytes)
	flipped := bytes.Clone(good)
	flipped[100] ^= 4
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, second := range [][]byte{good, flipped} {
		landed := make(chan bool, 1)
		wg.Go(func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			p := &peer{t, c}
			p.greet()
			p.next()
			p.send(wire.AppendSource(nil, wire.Source{Grant: 1, State: handoff.SourceOpened, Shape: shape}))
			p.send(wire.AppendRuns(nil, wire.KindReady, []wire.Run{{First: 0, Count: 1}}))
			for _, b := range [][]byte{flipped, second} {
				for k, _ := p.next(); k != wire.KindRead; k, _ = p.next() {
				}
				p.send(append(wire.AppendData(nil, []wire.Entry{{Piece: 0, Length: blockBytes, Check: wire.Checksum(good)}}), b...))
			}
			_, _ = readAll(c)
			close(landed)
		})
		pulled := make(chan error, 1)
		go func() {
			_, err := m.dh.control.Pull(background(t), client.PullSpec{Plan: m.plan, Token: m.token, SourceAddress: l.Addr().String()}, nil)
			pulled <- err
		}()
		if bytes.Equal(second, good) {
			eventually(t, "the right bytes landed", func() bool {
				d, err := m.dh.control.Describe(background(t), false)
				check(t, err)
				return d.GetPulledBytesTotal() == blockBytes && bytes.Equal(m.target(0), good)
			})
			_, err := m.undo()
			check(t, err)
			<-pulled
		} else {
			wantCode(t, <-pulled, handoff.CodeIntegrity)
		}
		<-landed
		m.d.await(t, client.TargetDrained, m.plan.Attempt)
		m = newMove(t, m.ph, m.p, m.dh, m.d)
		check(t, m.openTarget())
	}
}
