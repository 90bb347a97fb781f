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

// async runs a pull in the background.
func (m *move) async() <-chan error {
	out := make(chan error, 1)
	go func() {
		_, err := m.pull()
		out <- err
	}()
	return out
}

func TestASourceThatChangedAfterItsAnnouncementIsReadAgainThenRefused(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(all()...)
	m.source(3)[17] ^= 1 // under the digest
	check(t, m.seal())
	_, err := m.pull()
	wantCode(t, err, handoff.CodeIntegrity)
	m.neverVisible()
	_, err = m.commit()
	wantCode(t, err, handoff.CodeClosed)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
}

func TestAPieceThatIsRightTheSecondTimeIsAccepted(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(all()...)
	m.source(3)[17] ^= 1
	m.source(5)[0] ^= 1
	pulled := m.async()
	eventually(t, "everything landed, the wrong bytes too", func() bool { return m.isEqual() })
	m.source(3)[17] ^= 1 // a hit of a stray writer that is gone when it is looked at again
	m.source(5)[0] ^= 1
	check(t, m.seal())
	check(t, <-pulled)
	if !m.isEqual() {
		t.Fatal("bytes differ")
	}
	got, err := m.pull()
	check(t, err)
	if got.Repulled != 2 {
		t.Fatalf("%+v", got)
	}
}

// The lease lapses before, during and after the read: never a commit (R-02, V-01, V-02).
func TestALeaseThatLapsesBeforeTheReadRefusesIt(t *testing.T) {
	m := newPair(t, lease(shortLease))
	m.ready()
	m.p.await(t, client.SourceClosed, m.plan.Attempt)
	check(t, m.renewTarget())
	_, err := m.pull()
	wantCode(t, err, handoff.CodeLease, handoff.CodeClosed)
	m.neverVisible()
}

func (m *move) renewTarget() error {
	_, err := m.dh.control.Renew(background(m.t), []handoff.Attempt{m.plan.Attempt}, nil, time.Minute)
	return err
}

func TestAGrantThatEndsDuringTheReadIsNeverValidated(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0, 1)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	check(t, m.p.CloseSource(background(t), m.plan.Attempt, handoff.CodeLease))
	wantCode(t, <-pulled, handoff.CodeLease)
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	m.neverVisible()
}

func TestAGrantThatEndsAfterTheReadAndBeforeTheQuestionIsNeverValidated(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(all()...)
	pulled := m.async()
	eventually(t, "everything landed", func() bool { return m.isEqual() })
	_, err := m.ph.control.Undo(background(t), m.plan, "", client.Sides{Source: true})
	check(t, err)
	wantCode(t, m.seal(), handoff.CodeClosed)
	wantCode(t, <-pulled, handoff.CodeClosed)
	m.neverVisible()
}

func TestADecodeLeaseThatLapsesAbortsTheTarget(t *testing.T) {
	m := newPair(t, lease(shortLease))
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	e := m.d.await(t, client.TargetAborted, m.plan.Attempt)
	if e.Cause != handoff.CodeLease || m.d.IsVisible(m.slot, m.plan.Attempt) {
		t.Fatalf("%+v", e)
	}
	_, err = m.commit()
	wantCode(t, err, handoff.CodeAborted)
}

func TestAnUndoStopsARunningPullAndDrains(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	start := time.Now()
	_, err := m.undo()
	check(t, err)
	wantCode(t, <-pulled, handoff.CodeClosed)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	if took := time.Since(start); took > time.Second {
		t.Fatalf("it took %s", took)
	}
	// The grant outlives its reader: another connection may still read, until TP is told.
	c, err := m.ph.control.Release(background(t), m.plan, "", client.Sides{Source: true})
	check(t, err)
	if c.Source != handoff.SourceClosed || c.Validated {
		t.Fatalf("%+v", c)
	}
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
}

func TestARestartedSourceRefusesOldGrantsAtOnceAndServesNewOnes(t *testing.T) {
	m := newPair(t)
	m.ready()
	m.ph.restart(t)
	start := time.Now()
	_, err := m.pull()
	wantCode(t, err, handoff.CodeStaleIncarnation)
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("it took %s", took)
	}
	e := m.p.await(t, client.Reattached, handoff.Attempt{})
	if e.Incarnation != 2 {
		t.Fatalf("%+v", e)
	}
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
	next := newMove(t, m.ph, m.p, m.dh, m.d)
	next.ready()
	_, err = next.pull()
	check(t, err)
	_, err = next.commit()
	check(t, err)
}

func TestASourceThatDiesDuringTheReadIsNoticedAtOnce(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	start := time.Now()
	check(t, m.ph.Close())
	wantCode(t, <-pulled, handoff.CodeProgress, handoff.CodeStaleIncarnation)
	if took := time.Since(start); took > time.Second {
		t.Fatalf("it took %s", took)
	}
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
}

func TestARestartedTargetAdoptsWhatIsVisibleAndNothingElse(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	other := newMove(t, m.ph, m.p, m.dh, m.d)
	other.ready()
	_, err = other.pull()
	check(t, err)

	m.dh.restart(t)
	e := m.d.await(t, client.Reattached, handoff.Attempt{})
	if e.Incarnation != 2 || len(e.Adopted) != 1 || e.Adopted[0] != m.plan.Attempt || len(e.Closed) != 1 || e.Closed[0] != other.plan.Attempt {
		t.Fatalf("%+v", e)
	}
	m.d.await(t, client.TargetDrained, other.plan.Attempt)
	if !m.d.IsVisible(m.slot, m.plan.Attempt) || m.d.IsVisible(other.slot, other.plan.Attempt) {
		t.Fatal("the flag page differs from what was committed")
	}
	for range 2 { // the repeat of the commit of the life before
		ans, err := m.commit()
		check(t, err)
		if ans.State != handoff.TargetCommitted || ans.Token != m.token {
			t.Fatalf("%+v", ans)
		}
	}
	_, err = other.commit()
	wantCode(t, err, handoff.CodeStaleIncarnation)
	_, err = other.undo()
	wantCode(t, err, handoff.CodeStaleIncarnation)

	check(t, m.d.FinishTarget(background(t), m.plan.Attempt))
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	check(t, m.d.Freed(background(t), m.plan.Attempt, false))
	check(t, m.d.Freed(background(t), other.plan.Attempt, false))
}

func TestNothingIsAnsweredBeforeTheFlagPageIsAdopted(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	check(t, m.dh.Close()) // first the daemon dies, then its engine is too slow to come back
	m.d.die(t)
	m.dh.start(t)
	for _, ask := range []func() error{
		func() error { _, err := m.undo(); return err },
		func() error { _, err := m.commit(); return err },
		func() error { _, err := m.pull(); return err },
		func() error { return m.renewTarget() },
	} {
		wantCode(t, ask(), handoff.CodeUnavailable)
	}
	attach(t, m.dh.cfg.EngineSocket, m.d.id) // an engine that lost its memory: nothing was visible in it
	_, err = m.undo()
	wantCode(t, err, handoff.CodeStaleIncarnation)
}

func TestAnEngineThatDiesAbortsWhatItHadVisible(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	open := newMove(t, m.ph, m.p, m.dh, m.d)
	open.ready()
	m.d.die(t)
	eventually(t, "the engine is gone", func() bool {
		d, err := m.dh.control.Describe(background(t), false)
		check(t, err)
		return len(d.GetEngines()) == 0 && d.GetTargetsLive() == 0 && d.GetRegisteredBytes() == 0
	})
	c, err := m.dh.control.Undo(background(t), m.plan, "", client.Sides{Target: true})
	check(t, err)
	if c.Target != handoff.TargetAborted || !c.Drained {
		t.Fatalf("%+v", c)
	}
	_, err = open.pull()
	wantCode(t, err, handoff.CodeEngine)
	again := attach(t, m.dh.cfg.EngineSocket, m.d.id)
	next := newMove(t, m.ph, m.p, m.dh, again)
	next.ready()
	_, err = next.pull()
	check(t, err)
}

func TestAnEngineThatDiesDuringThePullEndsItAndItsMemoryIsUnmapped(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	m.d.die(t)
	wantCode(t, <-pulled, handoff.CodeEngine)
	attach(t, m.dh.cfg.EngineSocket, m.d.id)
}

func TestASecondEngineOfTheSameNameWaitsForTheFirstToLeave(t *testing.T) {
	h := startHost(t, "t1")
	first := attach(t, h.cfg.EngineSocket, "p1")
	var second *engine
	var wg sync.WaitGroup
	wg.Go(func() { second = attach(t, h.cfg.EngineSocket, "p1") })
	eventuallyAfter(t, 50*time.Millisecond)
	d, err := h.control.Describe(background(t), false)
	check(t, err)
	if len(d.GetEngines()) != 1 {
		t.Fatalf("%v", d)
	}
	first.die(t)
	wg.Wait()
	if second.Incarnation() != 1 {
		t.Fatal(second.Incarnation())
	}
}

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

// next reads one frame, skipping none.
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

// refusal skips what came before it.
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

func TestTheWrongDaemonOnTheRightPortIsRefused(t *testing.T) {
	h := startHost(t, "tp")
	c := dial(t, h)
	c.send(wire.AppendHello(nil, wire.Hello{From: "td", FromIncarnation: 1, To: "another", ToIncarnation: 1}))
	if code := c.refusal(); code != handoff.CodeStaleIncarnation {
		t.Fatal(code)
	}
}

func TestOnlyAnnouncedPiecesOfTheCapabilityAreServed(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(2)
	for _, run := range []wire.Run{{First: 1, Count: 1}, {First: 2, Count: 2}, {First: 0, Count: shape.Pieces() + 1}} {
		c := dial(t, m.ph)
		c.hello("td", 1, m.ph)
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

// readAll reads until the other side closes.
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
	m := newPair(t, lease(shortLease))
	m.ready()
	c := dial(t, m.ph) // a reader that is stopped: it neither reads nor pings nor leaves
	c.hello("td", 1, m.ph)
	c.send(wire.AppendPull(nil, wire.Pull{Attempt: m.plan.Attempt, Capability: m.capability}))
	c.send(wire.AppendRuns(nil, wire.KindRead, []wire.Run{{First: 0, Count: shape.Pieces()}}))
	e := m.p.await(t, client.SourceClosed, m.plan.Attempt)
	if e.Cause != handoff.CodeLease {
		t.Fatalf("%+v", e)
	}
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
}

// silent accepts a pull, answers the greeting and then nothing: a stopped source.
func TestAStalledSourceFailsTheProgressDeadline(t *testing.T) {
	m := newPair(t)
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
		p.next()
		p.send(wire.AppendHelloOK(nil, wire.HelloOK{Node: "tp", Incarnation: 1}))
		p.next()
		p.send(wire.AppendSource(nil, wire.Source{Grant: 1, State: handoff.SourceOpened, Shape: shape}))
		p.send(wire.AppendRuns(nil, wire.KindReady, []wire.Run{{First: 0, Count: 1}}))
		_, _ = readAll(c)
	})
	start := time.Now()
	spec := m.spec()
	spec.SourceAddress = l.Addr().String()
	_, err = m.dh.control.Pull(background(t), spec, nil)
	wantCode(t, err, handoff.CodeProgress)
	if took := time.Since(start); took > 3*time.Second {
		t.Fatalf("it took %s", took)
	}
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	_ = l.Close()
}

func TestAShapeThatDiffersIsRefusedBeforeTheFirstByte(t *testing.T) {
	m := newPair(t)
	check(t, m.openTarget())
	other := shape
	other.Groups = []handoff.Group{{Name: "full", Layers: layers, Blocks: blocks - 1, BlockBytes: blockBytes}}
	g, err := m.p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: other, Offsets: m.from[:other.Pieces()]})
	check(t, err)
	m.capability = g.Capability
	_, err = m.pull()
	wantCode(t, err, handoff.CodeMismatch)
	wrong := shape
	wrong.Revision = "model@2"
	next := newMove(t, m.ph, m.p, m.dh, m.d)
	_, err = m.d.OpenTarget(background(t), client.TargetSpec{Plan: next.plan, Shape: wrong, Offsets: next.to, FlagSlot: next.slot})
	wantCode(t, err, handoff.CodeMismatch)
}

func TestMemoryOutsideTheSegmentIsRefused(t *testing.T) {
	m := newPair(t)
	for _, at := range []uint64{segment, segment - blockBytes + 1, 1 << 63, ^uint64(0)} {
		m.to[2] = at
		wantCode(t, m.openTarget(), handoff.CodeInvalid)
	}
	m.to = m.to[:3]
	wantCode(t, m.openTarget(), handoff.CodeInvalid)
}

// lateSource serves a pull by hand: it greets, tells of one piece and sends half
// of its bytes; the rest when it is told to.
func lateSource(t *testing.T, rest <-chan struct{}) (address string, half <-chan struct{}, wait func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	sent := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		p := &peer{t, c}
		p.next()
		p.send(wire.AppendHelloOK(nil, wire.HelloOK{Node: "tp", Incarnation: 1}))
		p.next()
		p.send(wire.AppendSource(nil, wire.Source{Grant: 1, State: handoff.SourceOpened, Shape: shape}))
		p.send(wire.AppendRuns(nil, wire.KindReady, []wire.Run{{First: 0, Count: 1}}))
		for k, _ := p.next(); k != wire.KindRead; k, _ = p.next() {
		}
		late := bytes.Repeat([]byte{0xee}, blockBytes)
		p.send(wire.AppendData(nil, []wire.Entry{{Piece: 0, Length: blockBytes, Check: wire.Checksum(late)}}))
		p.send(late[:blockBytes/2])
		close(sent)
		<-rest
		_, _ = c.Write(late[blockBytes/2:]) // into a connection that is gone
	})
	return l.Addr().String(), sent, func() {
		_ = l.Close()
		wg.Wait()
	}
}

func TestNoByteLandsAfterTheTargetIsDrained(t *testing.T) {
	m := newPair(t)
	check(t, m.openTarget())
	rest := make(chan struct{})
	address, half, wait := lateSource(t, rest)
	defer wait()
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
	close(rest)
	wantCode(t, <-pulled, handoff.CodeClosed)
	eventuallyAfter(t, 50*time.Millisecond)
	if !bytes.Equal(m.target(0), next) {
		t.Fatal("a late byte landed in the next request's block")
	}
}

func TestAnEngineCannotFreeWhatIsStillOpen(t *testing.T) {
	m := newPair(t)
	m.ready()
	wantCode(t, m.d.Freed(background(t), m.plan.Attempt, false), handoff.CodeNotReady)
	wantCode(t, m.p.Freed(background(t), m.plan.Attempt, true), handoff.CodeNotReady)
}

func TestWrongAnnouncementsComeBackFromSeal(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(all()...)
	check(t, m.p.Announce(background(t), m.plan.Attempt, []uint32{3}, []uint32{12345})) // the piece was written again
	wantCode(t, m.seal(), handoff.CodeConflict)
	next := newMove(t, m.ph, m.p, m.dh, m.d)
	next.open()
	check(t, next.p.Announce(background(t), next.plan.Attempt, []uint32{shape.Pieces()}, []uint32{1}))
	wantCode(t, next.seal(), handoff.CodeInvalid)
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
			p.next()
			p.send(wire.AppendHelloOK(nil, wire.HelloOK{Node: "tp", Incarnation: 1}))
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

func TestANewerReaderTakesTheDecodeOver(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	for number := range uint32(4) {
		got, err := m.dh.control.RenewDecode(background(t), []handoff.Attempt{m.plan.Attempt}, handoff.Reader{Number: number}, 0)
		check(t, err)
		if len(got) != 0 {
			t.Fatalf("reader %d: %v", number, got)
		}
	}
	got, err := m.dh.control.RenewDecode(background(t), []handoff.Attempt{m.plan.Attempt}, handoff.Reader{Number: 2}, 0)
	check(t, err)
	if len(got) != 1 {
		t.Fatal("an older reader renewed a decode")
	}
}
