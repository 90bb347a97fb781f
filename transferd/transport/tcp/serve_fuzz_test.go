package tcp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/segment"
)

const memoryBytes = 4 << 10 // bytes of the segment; what is around the pieces is secret

// talker is a peer that says a fixed text and takes whatever comes.
type talker struct {
	io.Reader
	net.Conn
	mu    sync.Mutex
	heard bytes.Buffer
}

func (c *talker) Read(b []byte) (int, error) { return c.Reader.Read(b) }
func (c *talker) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard.Write(b)
}
func (c *talker) SetDeadline(time.Time) error      { return nil }
func (c *talker) SetReadDeadline(time.Time) error  { return nil }
func (c *talker) SetWriteDeadline(time.Time) error { return nil }
func (c *talker) Close() error                     { return nil }

// serving is a daemon's core with one source: pieces 0, 1 and 3 are announced, the
// capability is for 0 and 1.
type serving struct {
	core  *fence.Core
	plan  handoff.Plan
	token []byte
}

func newServing(t testing.TB) *serving {
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := native.Memfd("m", memoryBytes)
	must(err)
	t.Cleanup(func() { must(f.Close()) })
	s, err := new(segment.Book).Map(f, memoryBytes)
	must(err)
	everything := segment.Extent{Length: memoryBytes}
	copy(s.View(everything), bytes.Repeat([]byte{0x5e}, memoryBytes))
	e := &fence.Engine{ID: "e", Revision: shape.Revision, Layout: shape.Layout, Segment: s, Page: flagpage.New(make([]byte, flagpage.SlotBytes), 1),
		Notify: func(fence.Notice) {}, Close: s.Close}
	v := &serving{core: fence.New(fence.Config{Node: "tp", Incarnation: 1})}
	t.Cleanup(func() { must(v.core.Unmap()) })
	_, err = v.core.Attach(e)
	must(err)
	seat := func(n handoff.NodeID) handoff.Seat { return handoff.Seat{Engine: "e", Node: n, Incarnation: 1} }
	v.plan = handoff.Plan{Attempt: handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 1}, P: seat("tp"), D: seat("td"), BodyDigest: handoff.Digest{1}}
	offsets := []uint64{64, 256, 512, 1024}
	for i, at := range offsets {
		copy(s.View(segment.Extent{At: at, Length: 64}), bytes.Repeat([]byte{byte(i + 1)}, 64))
	}
	g, err := v.core.OpenSource(e, fence.SourceSpec{Plan: v.plan, Shape: shape, Offsets: offsets})
	must(err)
	must(v.core.Announce(e, v.plan.Attempt, []uint32{0, 1, 3}, []uint32{1, 2, 3}))
	v.token, err = capability.Attenuate(g.Capability, capability.Range{From: 0, To: 2})
	must(err)
	return v
}

// FuzzServe says anything after a right greeting and a right PULL. Whatever it is,
// only announced pieces of the capability are served, whole and unchanged, and in the
// end nothing of the source is posted any more.
func FuzzServe(f *testing.F) {
	read := func(runs ...wire.Run) []byte { return wire.AppendRuns(nil, wire.KindRead, runs) }
	for _, seed := range [][]byte{nil, read(wire.Run{First: 0, Count: 2}), read(wire.Run{First: 0, Count: 4}), read(wire.Run{First: 3, Count: 1}), read(wire.Run{First: 2, Count: 1}),
		wire.AppendFinish(read(wire.Run{First: 1, Count: 1}), 1), wire.AppendCancel(nil, 1), wire.AppendPing(nil, wire.Ping{Sequence: 1, Lease: 1 << 40}),
		wire.AppendQuestion(nil, wire.Question{Grant: 1, Incarnation: 1, Token: handoff.Token{Attempt: handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 1}, Node: "td", Incarnation: 1}, Nonce: 3}),
		wire.AppendHeader(nil, wire.KindData, 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v := newServing(t)
		hello := wire.AppendHello(nil, wire.Hello{From: "td", FromIncarnation: 1, To: "tp", ToIncarnation: 1})
		pull := wire.Pull{Attempt: v.plan.Attempt, Capability: v.token}
		if len(text)%2 == 1 {
			pull.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		}
		hello = wire.AppendPull(hello, pull)
		peer := &talker{Reader: bytes.NewReader(append(hello, text...))}
		s := &Server{cfg: ServerConfig{Core: v.core, Log: slog.New(slog.DiscardHandler)}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.serve(ctx, peer); err == nil {
			t.Fatal("a talk that ended is no error")
		}
		mustServeOnlyGranted(t, peer.heard.Bytes())
		_, sources := v.core.Records(8)
		for _, r := range sources {
			if r.Posted != 0 || r.Validated {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func mustServeOnlyGranted(t *testing.T, heard []byte) {
	t.Helper()
	for len(heard) > 0 {
		h, err := wire.ParseHeader(heard[:min(len(heard), wire.HeaderBytes)])
		if err != nil || int(h.Length) > len(heard)-wire.HeaderBytes {
			t.Fatalf("the server broke its framing: %+v, %v", h, err)
		}
		p := heard[wire.HeaderBytes : wire.HeaderBytes+h.Length]
		heard = heard[wire.HeaderBytes+h.Length:]
		if h.Kind != wire.KindData {
			if bytes.Contains(p, bytes.Repeat([]byte{0x5e}, 8)) {
				t.Fatal("memory around the pieces was told")
			}
			continue
		}
		n, err := wire.TableBytes(p[:wire.DataCountBytes], h.Length)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := wire.ParseTable(nil, p[wire.DataCountBytes:wire.DataCountBytes+n], h.Length)
		if err != nil {
			t.Fatal(err)
		}
		b := p[wire.DataCountBytes+n:]
		for _, e := range entries {
			if e.Piece > 1 || e.Length != 64 || !bytes.Equal(b[:64], bytes.Repeat([]byte{byte(e.Piece + 1)}, 64)) {
				t.Fatalf("served: %+v", e)
			}
			b = b[64:]
		}
	}
}
