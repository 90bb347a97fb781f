package daemon_test

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// The longest prompt that there is, as synthetic state: two layers of 2 KiB blocks,
// half a GiB, in a few MiB of blocks at either side that are used again and again.
const (
	longTokens = handoff.MaxPromptTokens
	longBlocks = longTokens / 16
	longBytes  = 2 << 10
	longPlaces = segment / longBytes
)

// A handoff of 2 Mi tokens takes the memory of its tables and of a window, however
// far P's announcements run ahead of D.
func TestAHandoffOfTwoMillionTokensRunsInConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("moves half a GiB")
	}
	ph, p, dh, d := pair(t)
	m := newMove(t, ph, p, dh, d)
	long := handoff.Shape{Revision: shape.Revision, Layout: shape.Layout, Tokens: longTokens,
		Groups: []handoff.Group{{Name: "full", Layers: 2, Blocks: longBlocks, BlockBytes: longBytes}}}
	places := make([]uint64, long.Pieces())
	digests := make([]uint32, long.Pieces())
	for i := range places {
		places[i] = uint64(i) * 7 % longPlaces * longBytes
		digests[i] = client.Checksum(p.memory.Bytes()[places[i]:][:longBytes])
	}
	var err error
	m.token, err = d.OpenTarget(background(t), client.TargetSpec{Plan: m.plan, Shape: long, Offsets: places, FlagSlot: m.slot})
	check(t, err)
	g, err := p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: long, Offsets: places})
	check(t, err)
	m.capability = g.Capability
	pulled := make(chan error, 1)
	var got client.PullResult
	go func() {
		spec := m.spec()
		spec.ProgressDeadline = time.Minute
		var err error
		got, err = dh.control.Pull(t.Context(), spec, nil)
		pulled <- err
	}()
	const chunk = 4096
	announce := func(first int) {
		pieces := make([]uint32, chunk)
		for i := range pieces {
			pieces[i] = uint32(first + i)
		}
		check(t, p.Announce(t.Context(), m.plan.Attempt, pieces, digests[first:first+chunk]))
	}
	announce(0)
	eventually(t, "it runs", func() bool { return dh.Core().Stats().PulledBytes > 0 })
	debug.FreeOSMemory()
	before := resident(t)
	for first := chunk; first < len(places); first += chunk { // as far ahead as can be
		announce(first)
	}
	sealed := make(chan error, 1)
	go func() { sealed <- p.Seal(t.Context(), m.plan.Attempt) }()
	var peak atomic.Uint64
	for over := false; !over; {
		select {
		case err := <-pulled:
			check(t, err)
			over = true
		case <-time.After(20 * time.Millisecond):
			peak.Store(max(peak.Load(), resident(t)))
		}
	}
	check(t, <-sealed)
	const noise = 48 << 20 // of this runtime, which shares the process with both daemons and engines
	t.Logf("%d tokens, %d MiB in %d pieces: %d MiB resident before, %d at most", longTokens, got.Bytes>>20, got.Pieces, before>>20, peak.Load()>>20)
	if got.Bytes != long.Bytes() || peak.Load() > before+noise {
		t.Fatalf("%+v; %d MiB resident before, %d at most", got, before>>20, peak.Load()>>20)
	}
}

func resident(t *testing.T) uint64 {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	check(t, err)
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
	check(t, err)
	return pages * uint64(os.Getpagesize())
}
