package daemon_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// transfers is a million for the soak: go test ./transferd/daemon -run Soak -transfers 1000000 -timeout 2h
var transfers = flag.Int("transfers", 400, "small transfers of the soak test")

// footprint is what a daemon must not lose.
type footprint struct {
	goroutines, files int
	resident          uint64
}

func measure(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	statm, err := os.ReadFile("/proc/self/statm")
	check(t, err)
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
	check(t, err)
	return footprint{runtime.NumGoroutine(), len(openFiles()), pages * uint64(os.Getpagesize())}
}

// Memory, descriptors, goroutines and registered bytes stay flat over many
// transfers through one daemon.
func TestASoakOfSmallTransfersLeavesNothingBehind(t *testing.T) {
	brief := func(c *daemon.Config) { c.Retention = 200 * time.Millisecond }
	ph, p, dh, d := pair(t, brief)
	one := newMove(t, ph, p, dh, d)
	transfer := func(n int) {
		m := *one
		m.plan.Attempt.Handoff = handoff.HandoffID("soak-" + strconv.Itoa(n))
		m.small(context.Background())
	}
	const warm, growth = 200, 64 << 20 // transfers, bytes of noise
	for n := range warm {
		transfer(n)
	}
	settled(t, dh)
	before := measure(t)
	registered := ph.Core().Stats().RegisteredBytes
	for n := range *transfers {
		transfer(warm + n)
	}
	settled(t, dh)
	eventually(t, "the records are forgotten", func() bool {
		s, p := dh.Core().Stats(), ph.Core().Stats()
		return s.Tombstones == 0 && p.Tombstones == 0 && p.PinnedBlocks == 0 && s.QuarantinedBytes == 0 && p.SourcesLive == 0
	})
	eventually(t, "goroutines and files are what they were", func() bool {
		now := measure(t)
		return now.goroutines <= before.goroutines+2 && now.files <= before.files+2
	})
	after := measure(t)
	t.Logf("%d transfers: %+v, then %+v", *transfers, before, after)
	if after.resident > before.resident+growth {
		t.Errorf("resident memory grew by %d MiB", (after.resident-before.resident)>>20)
	}
	if got := ph.Core().Stats().RegisteredBytes; got != registered {
		t.Errorf("%d registered bytes, %d before", got, registered)
	}
}

// small is one handoff that leaves nothing in the test either: no context that the
// test's end waits for, no event that was looked at.
func (m *move) small(ctx context.Context) {
	m.t.Helper()
	var err error
	m.token, err = m.d.OpenTarget(ctx, client.TargetSpec{Plan: m.plan, Shape: shape, Offsets: m.to, FlagSlot: m.slot})
	check(m.t, err)
	g, err := m.p.OpenSource(ctx, client.SourceSpec{Plan: m.plan, Shape: shape, Offsets: m.from, Blocks: []uint32{1, 2, 3}})
	check(m.t, err)
	m.capability = g.Capability
	digests := make([]uint32, shape.Pieces())
	for i := range digests {
		digests[i] = client.Checksum(m.source(uint32(i)))
	}
	check(m.t, m.p.Announce(ctx, m.plan.Attempt, all(), digests))
	check(m.t, m.p.Seal(ctx, m.plan.Attempt))
	_, err = m.dh.control.Pull(ctx, m.spec(), nil)
	check(m.t, err)
	_, err = m.dh.control.Commit(ctx, m.plan, m.token, m.plan.Attempt.Operation("commit"), 0)
	check(m.t, err)
	m.p.await(m.t, client.SourceDrained, m.plan.Attempt)
	check(m.t, m.p.Freed(ctx, m.plan.Attempt, true))
	check(m.t, m.d.FinishTarget(ctx, m.plan.Attempt))
	m.d.await(m.t, client.TargetDrained, m.plan.Attempt)
	check(m.t, m.d.Freed(ctx, m.plan.Attempt, false))
	m.p.forget()
	m.d.forget()
}

// forget drops the events that were looked at.
func (e *engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = nil
}

// A data folder that cannot be written refuses engines and says why, until it can.
func TestAFullDiskRefusesEnginesAndSaysWhy(t *testing.T) {
	h := startHost(t, "td")
	block := filepath.Join(h.cfg.Data, "engines.next") // the file that is written first
	check(t, os.Mkdir(block, 0o700))
	memory, err := client.NewMemory("segment", segment)
	check(t, err)
	defer func() { check(t, memory.Close()) }()
	cfg := client.EngineConfig{Socket: h.cfg.EngineSocket, Engine: "d1", Revision: shape.Revision, Layout: shape.Layout, Segment: memory, FlagSlots: 4}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	_, err = client.Attach(ctx, cfg)
	cancel()
	if err == nil || !strings.Contains(err.Error(), "cannot be recorded") {
		t.Fatal(err)
	}
	if len(h.Core().Engines()) != 0 {
		t.Fatal("it was attached")
	}
	check(t, os.Remove(block))
	e, err := client.Attach(background(t), cfg)
	check(t, err)
	check(t, e.Close())
}
