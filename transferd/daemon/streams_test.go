package daemon_test

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// streams lets even a small pull use so many connections.
func streams(n int) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Streams, c.StreamBytes = n, 1 }
}

const (
	bigBlocks = 96
	bigBytes  = 256 << 10
)

var bigShape = handoff.Shape{Revision: shape.Revision, Layout: shape.Layout, Tokens: 90,
	Groups: []handoff.Group{{Name: "full", Layers: 1, Blocks: bigBlocks, BlockBytes: bigBytes}}}

// bulk is a handoff of 24 MiB: long enough to be met in the middle.
type bulk struct {
	*move
	grant client.SourceGrant
}

func newBig(t *testing.T, ph, dh *host) *bulk {
	t.Helper()
	memory := func() *client.Memory {
		m, err := client.NewMemory("big", bigBlocks*bigBytes)
		check(t, err)
		return m
	}
	p, d := attachMemory(t, ph.cfg.EngineSocket, "p1", memory()), attachMemory(t, dh.cfg.EngineSocket, "d1", memory())
	for i := range p.memory.Bytes() {
		p.memory.Bytes()[i] = byte(i*7 + i>>9)
	}
	return (&bulk{move: &move{t: t, p: p, d: d, ph: ph, dh: dh}}).again(1)
}

// again is the next epoch of the same handoff.
func (b *bulk) again(epoch handoff.Epoch) *bulk {
	b.t.Helper()
	n := &bulk{move: &move{t: b.t, p: b.p, d: b.d, ph: b.ph, dh: b.dh, slot: uint32(epoch)}}
	n.plan = handoff.Plan{Attempt: handoff.Attempt{Handoff: "big", Epoch: epoch, Nonce: 1},
		P:          handoff.Seat{Engine: b.p.id, Node: b.p.Node(), Incarnation: b.p.Incarnation()},
		D:          handoff.Seat{Engine: b.d.id, Node: b.d.Node(), Incarnation: b.d.Incarnation()},
		BodyDigest: handoff.Digest{1}}
	for i := range uint64(bigBlocks) {
		n.from = append(n.from, i*7%bigBlocks*bigBytes)
		n.to = append(n.to, i*11%bigBlocks*bigBytes)
	}
	var err error
	n.token, err = n.d.OpenTarget(background(n.t), client.TargetSpec{Plan: n.plan, Shape: bigShape, Offsets: n.to, FlagSlot: n.slot})
	check(n.t, err)
	n.grant, err = n.p.OpenSource(background(n.t), client.SourceSpec{Plan: n.plan, Shape: bigShape, Offsets: n.from})
	check(n.t, err)
	n.capability = n.grant.Capability
	var pieces, digests []uint32
	for i := range uint32(bigBlocks) {
		pieces = append(pieces, i)
		digests = append(digests, client.Checksum(n.p.memory.Bytes()[n.from[i]:n.from[i]+bigBytes]))
	}
	check(n.t, n.p.Announce(background(n.t), n.plan.Attempt, pieces, digests))
	check(n.t, n.p.Seal(background(n.t), n.plan.Attempt))
	return n
}

func (b *bulk) pullFrom(address string) (client.PullResult, error) {
	spec := b.spec()
	spec.SourceAddress = address
	spec.ProgressDeadline = patience
	return b.dh.control.Pull(background(b.t), spec, nil)
}

func (b *bulk) whole() bool {
	for i := range uint64(bigBlocks) {
		if !bytes.Equal(b.p.memory.Bytes()[b.from[i]:b.from[i]+bigBytes], b.d.memory.Bytes()[b.to[i]:b.to[i]+bigBytes]) {
			return false
		}
	}
	return true
}

func TestALargePullUsesSeveralConnectionsAndKeepsThem(t *testing.T) {
	ph, dh := startHost(t, "tp"), startHost(t, "td", streams(4))
	r := newRelay(t, ph.PeerAddress)
	b := newBig(t, ph, dh)
	for epoch := handoff.Epoch(1); ; epoch++ {
		clear(b.d.memory.Bytes())
		_, err := b.pullFrom(r.Addr().String())
		check(t, err)
		if !b.whole() {
			t.Fatal("bytes differ")
		}
		b.p.await(t, client.SourceDrained, b.plan.Attempt)
		settled(t, dh)
		if dialed, open := r.counts(); dialed > 4 || open != dialed || dialed < 2 {
			t.Fatalf("%d connections dialled, %d open", dialed, open)
		}
		if epoch == 3 {
			break
		}
		b = b.again(epoch + 1)
	}
}

func TestARevokeDestroysEveryConnectionOfAPull(t *testing.T) {
	ph, dh := startHost(t, "tp"), startHost(t, "td", streams(4))
	slow := newThrottle(t, ph.PeerAddress(), 1<<30)
	b := newBig(t, ph, dh)
	pulled := make(chan error, 1)
	go func() { _, err := b.pullFrom(slow.Addr().String()); pulled <- err }()
	eventually(t, "bytes flow", func() bool { return slow.bytes.Load() > 1<<20 })
	_, err := ph.control.Undo(background(t), b.plan, b.plan.Attempt.Operation("revoke"), client.Sides{Source: true})
	check(t, err)
	b.p.await(t, client.SourceDrained, b.plan.Attempt)
	if err := <-pulled; err == nil {
		t.Fatal("a revoked source was read")
	}
	b.d.await(t, client.TargetDrained, b.plan.Attempt)
	check(t, b.d.Freed(background(t), b.plan.Attempt, false))
	for i := range b.d.memory.Bytes() {
		b.d.memory.Bytes()[i] = canary
	}
	eventuallyAfter(t, 50*time.Millisecond)
	if !bytes.Equal(b.d.memory.Bytes(), bytes.Repeat([]byte{canary}, bigBlocks*bigBytes)) {
		t.Fatal("a late byte landed")
	}
}

// throttle passes bytes slowly, counts those of the source, and breaks every
// connection once at so many of them.
type throttle struct {
	net.Listener
	bytes atomic.Int64
	cutAt atomic.Int64
	broke func() // called then
}

func newThrottle(t *testing.T, to string, cutAt int64) *throttle {
	t.Helper()
	return newThrottleAt(t, "127.0.0.1:0", to, cutAt)
}

func newThrottleAt(t *testing.T, at, to string, cutAt int64) *throttle {
	t.Helper()
	l, err := net.Listen("tcp", at)
	check(t, err)
	r := &throttle{Listener: l, broke: func() {}}
	r.cutAt.Store(cutAt)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go func() { _, _ = io.Copy(up, c); _ = up.Close(); _ = c.Close() }()
			go r.pass(c, up)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return r
}

func (r *throttle) pass(c, up net.Conn) {
	defer func() { _ = up.Close(); _ = c.Close() }()
	b := make([]byte, 128<<10)
	for {
		n, err := up.Read(b)
		if err != nil {
			return
		}
		if at := r.cutAt.Load(); r.bytes.Add(int64(n)) > at && r.cutAt.CompareAndSwap(at, 1<<62) {
			r.broke()
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// A pull whose connections break goes on with what it lacks while the source still
// holds; what is here is not read again.
func TestABrokenPullReadsOnlyItsSuffixAgain(t *testing.T) {
	for _, n := range []int{1, 4} {
		ph, dh := startHost(t, "tp"), startHost(t, "td", streams(n))
		b := newBig(t, ph, dh)
		half := newThrottle(t, ph.PeerAddress(), int64(bigShape.Bytes()/2))
		got, err := b.pullFrom(half.Addr().String())
		check(t, err)
		if !b.whole() || got.Bytes != bigShape.Bytes() {
			t.Fatalf("%+v", got)
		}
		window := int64(n) * (5 << 20)
		if through := half.bytes.Load(); through > int64(bigShape.Bytes())+window || half.cutAt.Load() != 1<<62 {
			t.Fatalf("%d streams: %d bytes were read for %d, a window is %d", n, through, bigShape.Bytes(), window)
		}
	}
}

// P tells of two rails. The preferred one breaks for good in the middle of a pull: the
// other carries what is missing, and nothing else. The next pull begins with the
// preferred one again, once that is back.
func TestARailThatBreaksInTheMiddleLeavesItsSuffixToTheNext(t *testing.T) {
	for _, n := range []int{1, 4} {
		ph, dh := startHost(t, "tp"), startHost(t, "td", streams(n))
		to := ph.PeerAddress()
		first, second := newThrottle(t, to, int64(bigShape.Bytes()/2)), newThrottle(t, to, 1<<62)
		rails := first.Addr().String() + "," + second.Addr().String()
		ph.cfg.Advertise = rails
		ph.restart(t)
		b := newBig(t, ph, dh)
		if b.p.PeerAddress() != rails {
			t.Fatal(b.p.PeerAddress())
		}
		first.broke = func() { _ = first.Close() } // nobody answers there any more
		got, err := b.pullFrom(b.p.PeerAddress())
		check(t, err)
		if !b.whole() || got.Bytes != bigShape.Bytes() || got.Lane != "tcp" {
			t.Fatalf("%+v", got)
		}
		window := int64(n) * (5 << 20)
		one, other := first.bytes.Load(), second.bytes.Load()
		if first.cutAt.Load() != 1<<62 || other < int64(bigShape.Bytes()/2)-window || one+other > int64(bigShape.Bytes())+window {
			t.Fatalf("%d streams: %d bytes by the first rail, %d by the other, of %d", n, one, other, bigShape.Bytes())
		}
		b.p.await(t, client.SourceDrained, b.plan.Attempt)
		settled(t, dh)

		back := newThrottleAt(t, first.Addr().String(), to, 1<<62)
		b = b.again(2)
		eventuallyAfter(t, 20*time.Millisecond) // its pause is over
		if _, err = b.pullFrom(rails); err != nil || !b.whole() {
			t.Fatal(err)
		}
		// A connection that is kept still answers a ping: that is no piece.
		if back.bytes.Load() < int64(bigShape.Bytes()) || second.bytes.Load()-other >= bigBytes {
			t.Fatalf("%d streams: %d bytes by the rail that is back, %d more by the other", n, back.bytes.Load(), second.bytes.Load()-other)
		}
	}
}

// When the source does not hold any more nothing of the half that came is ever
// shown: the next epoch reads the whole, and what it shows is all new.
func TestAfterALostSourceTheWholeIsReadAgainAndNothingHalfOldIsShown(t *testing.T) {
	ph, dh := startHost(t, "tp"), startHost(t, "td", streams(2))
	b := newBig(t, ph, dh)
	half := newThrottle(t, ph.PeerAddress(), 1<<62)
	pulled := make(chan error, 1)
	go func() { _, err := b.pullFrom(half.Addr().String()); pulled <- err }()
	eventually(t, "half of it came", func() bool { return half.bytes.Load() > int64(bigShape.Bytes()/2) })
	check(t, b.p.CloseSource(background(t), b.plan.Attempt, handoff.CodeCapacity)) // P needs its blocks
	if err := <-pulled; err == nil {
		t.Fatal("a source that was closed half way was pulled")
	}
	b.neverVisible()
	b.d.await(t, client.TargetDrained, b.plan.Attempt)
	b.p.await(t, client.SourceDrained, b.plan.Attempt)
	for i := range b.p.memory.Bytes() {
		b.p.memory.Bytes()[i] ^= 0x5a // P computes again, and not the same
	}
	next := b.again(2)
	got, err := next.pullFrom(ph.PeerAddress())
	check(t, err)
	if got.Bytes != bigShape.Bytes() || !next.whole() {
		t.Fatalf("%+v", got)
	}
	_, err = next.commit()
	check(t, err)
	b.neverVisible()
}
