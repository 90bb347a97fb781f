package client

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/daemon"
)

// A connection can break while both sides live: to the daemon the engine died,
// so that everything it had open is over; the engine learns it when it is back.
func TestABrokenConnectionToALivingDaemonEndsWhatWasOpen(t *testing.T) {
	dir := t.TempDir()
	d, err := daemon.Start(daemon.Config{Node: "n1", Data: dir, EngineSocket: filepath.Join(dir, "e"), Control: "unix://" + filepath.Join(dir, "c"), Peer: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := NewMemory("m", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := Attach(ctx, EngineConfig{Socket: filepath.Join(dir, "e"), Engine: "e", Revision: "r", Layout: handoff.Digest{1}, Segment: m, FlagSlots: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	seat := handoff.Seat{Engine: "e", Node: "n1", Incarnation: e.Incarnation()}
	plan := handoff.Plan{Attempt: handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 1}, P: seat, D: seat, BodyDigest: handoff.Digest{1}}
	shape := handoff.Shape{Revision: "r", Layout: handoff.Digest{1}, Tokens: 1, Items: []handoff.Item{{Class: "i", Bytes: 8}}}
	if _, err := e.OpenTarget(ctx, TargetSpec{Plan: plan, Shape: shape, Offsets: []uint64{0}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.OpenSource(ctx, SourceSpec{Plan: plan, Shape: shape, Offsets: []uint64{8}}); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	broken := e.link
	e.mu.Unlock()
	if err := broken.conn.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[EventKind]Event{}
	for len(seen) < 6 {
		select {
		case ev := <-e.Events():
			if _, twice := seen[ev.Kind]; twice {
				t.Fatalf("%s came twice", ev.Kind)
			}
			seen[ev.Kind] = ev
		case <-ctx.Done():
			t.Fatalf("only %v", seen)
		}
	}
	if r := seen[Reattached]; r.Incarnation != e.Incarnation() || len(r.Adopted) != 0 || len(r.Closed) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, k := range []EventKind{TargetClosed, TargetDrained, SourceClosed, SourceDrained} {
		if ev := seen[k]; ev.Attempt != plan.Attempt || ev.Cause != handoff.CodeEngine || !ev.Drained {
			t.Fatalf("%s: %+v", k, ev)
		}
	}
	if err := e.Freed(ctx, plan.Attempt, false); err != nil {
		t.Fatal(err)
	}
	if _, err := e.OpenTarget(ctx, TargetSpec{Plan: plan, Shape: shape, Offsets: []uint64{0}}); handoff.CodeOf(err) != handoff.CodeClosed {
		t.Fatal(err)
	}
}
