package daemon_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

type rig struct {
	b        *testing.B
	control  *client.Control
	p, d     *client.Engine
	pm, dm   *client.Memory
	peer     string
	shape    handoff.Shape
	offsets  []uint64
	pieces   []uint32
	digests  []uint32
	attempts int
}

func newRig(b *testing.B, oneHost bool, blocks, blockBytes uint32) *rig {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	start := func(node handoff.NodeID) (*daemon.Daemon, daemon.Config) {
		dir := b.TempDir()
		cfg := daemon.Config{Node: node, Data: dir, EngineSocket: filepath.Join(dir, "e.sock"), Control: "unix://" + filepath.Join(dir, "c.sock"), Peer: "127.0.0.1:0", Lease: time.Minute}
		d, err := daemon.Start(cfg)
		must(err)
		b.Cleanup(func() { must(d.Close()) })
		return d, cfg
	}
	r := &rig{b: b, shape: handoff.Shape{Revision: "m", Layout: handoff.Digest{1}, Tokens: 1, Groups: []handoff.Group{{Name: "g", Layers: 1, Blocks: blocks, BlockBytes: blockBytes}}}}
	ph, pc := start("tp")
	dc := pc
	if !oneHost {
		_, dc = start("td")
	}
	r.peer = ph.PeerAddress()
	memory := func() *client.Memory {
		m, err := client.NewMemory("m", int(blocks)*int(blockBytes))
		must(err)
		b.Cleanup(func() { must(m.Close()) })
		for i := range m.Bytes() {
			m.Bytes()[i] = byte(i >> 7)
		}
		return m
	}
	r.pm, r.dm = memory(), memory()
	attach := func(c daemon.Config, id handoff.EngineID, m *client.Memory) *client.Engine {
		e, err := client.Attach(context.Background(), client.EngineConfig{Socket: c.EngineSocket, Engine: id, Revision: "m", Layout: r.shape.Layout, Segment: m, FlagSlots: 4})
		must(err)
		b.Cleanup(func() { must(e.Close()) })
		return e
	}
	r.p, r.d = attach(pc, "p", r.pm), attach(dc, "d", r.dm)
	for i := range blocks {
		at := uint64(i*7%blocks) * uint64(blockBytes) // scattered: 7 and a power of two have no common part
		r.offsets = append(r.offsets, at)
		r.pieces = append(r.pieces, i)
		r.digests = append(r.digests, client.Checksum(r.pm.Bytes()[at:at+uint64(blockBytes)]))
	}
	var err error
	r.control, err = client.Dial(dc.Control)
	must(err)
	b.Cleanup(func() { must(r.control.Close()) })
	return r
}

// handoff does everything of one handoff that a transferd sees.
func (r *rig) handoff() client.PullResult {
	ctx := context.Background()
	r.attempts++
	must := func(err error) {
		if err != nil {
			r.b.Fatal(err)
		}
	}
	plan := handoff.Plan{Attempt: handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprint("h", r.attempts)), Epoch: 1, Nonce: 1},
		P: handoff.Seat{Engine: "p", Node: r.p.Node(), Incarnation: r.p.Incarnation()}, D: handoff.Seat{Engine: "d", Node: r.d.Node(), Incarnation: r.d.Incarnation()}, BodyDigest: handoff.Digest{1}}
	token, err := r.d.OpenTarget(ctx, client.TargetSpec{Plan: plan, Shape: r.shape, Offsets: r.offsets})
	must(err)
	g, err := r.p.OpenSource(ctx, client.SourceSpec{Plan: plan, Shape: r.shape, Offsets: r.offsets})
	must(err)
	must(r.p.Announce(ctx, plan.Attempt, r.pieces, r.digests))
	must(r.p.Seal(ctx, plan.Attempt))
	res, err := r.control.Pull(ctx, client.PullSpec{Plan: plan, Token: token, SourceAddress: r.peer, Capability: g.Capability}, nil)
	must(err)
	_, err = r.control.Commit(ctx, plan, token, "c", 0)
	must(err)
	must(r.d.FinishTarget(ctx, plan.Attempt))
	wait := func(e *client.Engine, k client.EventKind) {
		for ev := range e.Events() {
			if ev.Kind == k {
				return
			}
		}
	}
	wait(r.d, client.TargetDrained)
	wait(r.p, client.SourceDrained)
	must(r.d.Freed(ctx, plan.Attempt, false))
	must(r.p.Freed(ctx, plan.Attempt, true))
	return res
}

func BenchmarkHandoff(b *testing.B) {
	for _, c := range []struct {
		name               string
		oneHost            bool
		blocks, blockBytes uint32
	}{
		{"small/tcp", false, 4, 4 << 10}, {"small/local", true, 4, 4 << 10},
		{"64MiB-16KiB/tcp", false, 4096, 16 << 10}, {"64MiB-64KiB/tcp", false, 1024, 64 << 10}, {"64MiB-1MiB/tcp", false, 64, 1 << 20},
		{"64MiB-64KiB/local", true, 1024, 64 << 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, c.oneHost, c.blocks, c.blockBytes)
			b.SetBytes(int64(r.shape.Bytes()))
			var wire uint64
			for b.Loop() {
				wire += r.handoff().WireMicros
			}
			b.ReportMetric(float64(wire)/float64(b.N), "wire-µs/op")
			b.ReportMetric(float64(r.shape.Bytes())*float64(b.N)/float64(max(wire, 1))/1e3, "wire-GB/s")
		})
	}
}
