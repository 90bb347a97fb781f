package daemon_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// Rows of the museum about waits that never end, and about what is counted.

// openucx/ucx#2893, #3364, #9516: whoever is silent, and however, no wait is
// without a deadline.
func TestNoWaitForAPeerIsWithoutADeadline(t *testing.T) {
	ph, p, dh, d := pair(t, hasty)
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	check(t, err)
	defer func() { check(t, deaf.Close()) }()
	gone, err := net.Listen("tcp", "127.0.0.1:0") // nobody listens any more
	check(t, err)
	check(t, gone.Close())
	var wg sync.WaitGroup
	for name, address := range map[string]string{"deaf": deaf.Addr().String(), "gone": gone.Addr().String()} {
		m := newMove(t, ph, p, dh, d)
		m.ready()
		wg.Go(func() {
			spec := m.spec()
			spec.SourceAddress = address
			_, err := dh.control.Pull(background(t), spec, nil)
			if handoff.CodeOf(err) != handoff.CodeProgress {
				t.Errorf("%s: %v", name, err)
			}
			d.await(t, client.TargetDrained, m.plan.Attempt)
		})
	}
	wg.Wait()
}

// kvcache-ai/Mooncake#736, #627, #830: a port belongs to one daemon. Another
// cannot share it, and one that comes later is told apart by the greeting.
func TestTwoDaemonsNeverShareAPort(t *testing.T) {
	h := startHost(t, "tq")
	cfg := h.cfg
	cfg.Node, cfg.Data, cfg.Peer = "tr", t.TempDir(), h.PeerAddress()
	cfg.EngineSocket, cfg.Control = cfg.Data+"/e.sock", "unix://"+cfg.Data+"/c.sock"
	if d, err := daemon.Start(cfg); err == nil {
		check(t, d.Close())
		t.Fatal("two daemons listen on one port")
	} else if !strings.Contains(err.Error(), "in use") {
		t.Fatal(err)
	}
	m := newPair(t)
	m.ready()
	spec := m.spec()
	spec.SourceAddress = h.PeerAddress() // the port is right, the daemon is not
	_, err := m.dh.control.Pull(background(t), spec, nil)
	wantCode(t, err, handoff.CodeStaleIncarnation)
	m.neverVisible()
}

// kvcache-ai/Mooncake#2246, #1336: grants are nobody's but the daemons': the
// orchestrator goes away in the middle of a pull, another one joins it and commits.
func TestAnOrchestratorsRestartLosesNoGrant(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0, 1)
	first, err := client.Dial(m.dh.ControlAddress())
	check(t, err)
	broken := make(chan error, 1)
	go func() {
		_, err := first.Pull(background(t), m.spec(), nil)
		broken <- err
	}()
	eventually(t, "a piece landed", func() bool { return string(m.source(0)) == string(m.target(0)) })
	check(t, first.Close())
	wantCode(t, <-broken, handoff.CodeUnavailable)
	var got client.PullResult
	reports, pulled := make(chan client.Progress, 1024), make(chan error, 1)
	go func() { // by another connection
		var err error
		got, err = m.dh.control.Pull(background(t), m.spec(), func(p client.Progress) { reports <- p })
		pulled <- err
	}()
	for range 3 { // by then the daemon knows that the first one left
		select {
		case <-reports:
		case err := <-pulled:
			t.Fatal("the pull ended with who asked for it: ", err)
		}
	}
	for i := uint32(2); i < shape.Pieces(); i++ {
		m.announce(i)
	}
	check(t, m.seal())
	check(t, <-pulled)
	if got.Bytes != shape.Bytes() || !m.isEqual() {
		t.Fatalf("%+v", got)
	}
	_, err = m.commit()
	check(t, err)
}

// ai-dynamo/dynamo#15079: bytes of a pull that failed are never counted as
// bytes that were committed.
func TestAFailedPullIsNoHit(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(all()...)
	m.source(4)[9] ^= 1
	check(t, m.seal())
	_, err := m.pull()
	wantCode(t, err, handoff.CodeIntegrity)
	s := m.dh.Core().Stats()
	if s.Committed != 0 || s.CommittedBytes != 0 || s.PulledBytes == 0 {
		t.Fatalf("%+v", s)
	}
}

// LMCache/LMCache#1215, #1030, #1339: every byte of D's memory is promised to
// half-done transfers, and so are all flag slots. The next one is refused at once,
// and of those that are there each one ends.
func TestAFullTargetRefusesOrEndsAndNeverWaits(t *testing.T) {
	const many = 64
	ph, dh := startHost(t, "tp"), startHost(t, "td")
	memory := func() *client.Memory {
		m, err := client.NewMemory("segment", segment)
		check(t, err)
		return m
	}
	p := attachMemory(t, ph.cfg.EngineSocket, "p1", memory())
	d := attachSlots(t, dh.cfg.EngineSocket, "d1", memory(), many)
	var moves []*move
	var pulls []<-chan error
	for range many { // made before any is opened: each fills its source
		moves = append(moves, newMove(t, ph, p, dh, d))
	}
	for n, m := range moves {
		m.slot = uint32(n)
		const share = segment / many // of the whole memory, to the last byte
		for i := range m.from {
			m.from[i] = uint64(n)*share + uint64(i)*(share/uint64(len(m.from))/64*64)
			m.to[i] = m.from[i]
		}
		m.openSmall(t)
		pulls = append(pulls, m.async())
	}
	next := *moves[0]
	next.plan.Attempt.Handoff, next.slot = "one-too-many", many
	wantCode(t, next.openTarget(), handoff.CodeInvalid, handoff.CodeCapacity, handoff.CodeConflict)
	for n, m := range moves {
		if n%2 == 1 { // P drops it; its blocks at D come back
			check(t, p.CloseSource(background(t), m.plan.Attempt, handoff.CodeCapacity))
			continue
		}
		m.announceSmall(t)
	}
	for n, m := range moves {
		err := <-pulls[n]
		if n%2 == 1 {
			wantCode(t, err, handoff.CodeCapacity)
			d.await(t, client.TargetDrained, m.plan.Attempt)
			check(t, d.Freed(background(t), m.plan.Attempt, false))
			continue
		}
		check(t, err)
	}
	again := *moves[1]
	again.plan.Attempt.Handoff = "again"
	check(t, again.openSmallTarget(t)) // what came back can be promised again
}

// small is a shape that many of fit into the segment.
var small = handoff.Shape{Revision: shape.Revision, Layout: shape.Layout, Tokens: 16, Groups: []handoff.Group{{Name: "full", Layers: 1, Blocks: 12, BlockBytes: 4096}}}

func (m *move) openSmallTarget(t *testing.T) (err error) {
	t.Helper()
	m.token, err = m.d.OpenTarget(background(t), client.TargetSpec{Plan: m.plan, Shape: small, Offsets: m.to[:small.Pieces()], FlagSlot: m.slot})
	return err
}

// openSmall opens both sides, with half of the pieces announced.
func (m *move) openSmall(t *testing.T) {
	t.Helper()
	check(t, m.openSmallTarget(t))
	g, err := m.p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: small, Offsets: m.from[:small.Pieces()]})
	check(t, err)
	m.capability = g.Capability
	m.tellSmall(t, 0, small.Pieces()/2)
}

func (m *move) announceSmall(t *testing.T) {
	t.Helper()
	m.tellSmall(t, small.Pieces()/2, small.Pieces())
	check(t, m.seal())
}

func (m *move) tellSmall(t *testing.T, from, to uint32) {
	t.Helper()
	var pieces, digests []uint32
	for i := from; i < to; i++ {
		pieces = append(pieces, i)
		digests = append(digests, client.Checksum(m.p.memory.Bytes()[m.from[i]:m.from[i]+4096]))
	}
	check(t, m.p.Announce(background(t), m.plan.Attempt, pieces, digests))
}
