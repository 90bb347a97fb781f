package daemon_test

import (
	"bytes"
	"net"
	"sync"
	"testing"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
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

// What rots in D's memory between landing and Verify is seen only by a daemon that
// reads it once more (obligation 6 of contracts/handoff); it then comes from P again.
func TestMemoryThatRotsAfterItLandedIsFoundByReadingItOnceMore(t *testing.T) {
	for _, reread := range []bool{true, false} {
		m := newPair(t, func(c *daemon.Config) { c.Reread = reread })
		m.open()
		m.announce(all()...)
		pulled := m.async()
		eventually(t, "everything landed and was found right", func() bool {
			d, err := m.dh.control.Describe(background(t), true)
			check(t, err)
			return d.GetTargets()[0].GetState() == transferv1.TargetState_TARGET_STATE_LANDED
		})
		m.target(3)[17] ^= 1
		check(t, m.seal())
		check(t, <-pulled)
		got, err := m.pull()
		check(t, err)
		if found := got.Repulled == 1 && m.isEqual(); found != reread {
			t.Fatalf("read once more: %t; %+v, equal %t", reread, got, m.isEqual())
		}
	}
}

// vllm-project/vllm#49297, #37635, ai-dynamo/dynamo#10741: a region class that
// one side lacks, or has in another size, is refused before the first byte.
func TestAShapeThatDiffersIsRefusedBeforeTheFirstByte(t *testing.T) {
	ph, p, dh, d := pair(t)
	for name, change := range map[string]func(s *handoff.Shape){
		"blocks": func(s *handoff.Shape) {
			s.Groups = []handoff.Group{{Name: "full", Layers: layers, Blocks: blocks - 1, BlockBytes: blockBytes}}
		},
		"bytes": func(s *handoff.Shape) {
			s.Groups = []handoff.Group{{Name: "full", Layers: layers, Blocks: blocks, BlockBytes: blockBytes / 2}}
		},
		"class":      func(s *handoff.Shape) { s.Items = []handoff.Item{{Class: "conv", Bytes: itemBytes}} },
		"item bytes": func(s *handoff.Shape) { s.Items = []handoff.Item{{Class: "sampler", Bytes: itemBytes - 1}} },
		"no items":   func(s *handoff.Shape) { s.Items = nil },
	} {
		m := newMove(t, ph, p, dh, d)
		check(t, m.openTarget())
		other := shape
		change(&other)
		g, err := m.p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: other, Offsets: m.from[:other.Pieces()]})
		check(t, err)
		m.capability = g.Capability
		if _, err = m.pull(); handoff.CodeOf(err) != handoff.CodeMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := dh.Core().Stats(); s.PulledBytes != 0 {
		t.Errorf("%d bytes moved", s.PulledBytes)
	}
	m := newMove(t, ph, p, dh, d)
	wrong := shape
	wrong.Revision = "model@2"
	_, err := d.OpenTarget(background(t), client.TargetSpec{Plan: m.plan, Shape: wrong, Offsets: m.to, FlagSlot: m.slot})
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

// lateSource serves a pull by hand: it greets, tells of one piece and sends half of
// its bytes; the rest when it is told to.
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
		p.greet()
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
