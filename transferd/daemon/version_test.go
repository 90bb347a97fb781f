package daemon_test

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/client"
)

// spoken gives a frame as a daemon of another protocol version writes it.
func spoken(version byte, frame []byte) []byte {
	frame[4] = version
	binary.LittleEndian.PutUint32(frame[12:], wire.Checksum(frame[:12]))
	return frame
}

// Daemons of two protocol versions meet while a fleet is upgraded: either refuses
// the other with a reason before anything is granted or moved, so that the
// orchestrator tries another pair.
func TestDaemonsOfTwoVersionsRefuseEachOther(t *testing.T) {
	m := newPair(t)
	m.ready()
	for _, version := range []byte{1, wire.Version + 1} {
		old := dial(t, m.ph)
		old.send(spoken(version, wire.AppendHello(nil, wire.Hello{From: "td", FromIncarnation: 1, To: "tp", ToIncarnation: m.ph.Incarnation()})))
		if code := old.refusal(); code != handoff.CodeMismatch {
			t.Fatalf("version %d: %s", version, code)
		}
		if n, err := readAll(old); n != 0 || err != nil {
			t.Fatalf("the connection goes on: %d bytes, %v", n, err)
		}
	}
	if s := m.ph.Core().Stats(); s.PulledBytes != 0 || s.SourcesLive != 1 {
		t.Fatalf("%+v", s)
	}
	_, err := m.pull() // nobody was harmed
	check(t, err)
}

func TestATargetGivesUpOnASourceOfAnotherVersionAtOnce(t *testing.T) {
	m := newPair(t)
	check(t, m.openTarget())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = l.Close() }()
	wg.Go(func() {
		for { // as a daemon of version 1 does: it reads a header, refuses and closes
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = io.ReadFull(c, make([]byte, wire.HeaderBytes))
			_, _ = c.Write(spoken(1, wire.AppendError(nil, handoff.Errorf(handoff.CodeInvalid, "protocol version 2, want 1"))))
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	})
	_, err = m.dh.control.Pull(background(t), client.PullSpec{Plan: m.plan, Token: m.token, SourceAddress: l.Addr().String(), ProgressDeadline: patience}, nil)
	wantCode(t, err, handoff.CodeMismatch)
	if !strings.Contains(err.Error(), "version 1") {
		t.Fatal(err)
	}
	m.neverVisible()
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
}
