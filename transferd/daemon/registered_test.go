package daemon_test

import (
	"os"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// One memory of a server that is attached twice, as P and as D may be, is registered
// once, and the registration goes with the last of the two: the other one's end neither
// unmaps what a pull still reads nor leaves anything behind.
func TestARegistrationIsHeldByEachEngineThatNamesIt(t *testing.T) {
	ph, dh := startHost(t, "tp"), startHost(t, "td")
	memory, err := client.NewMemory("twice", segment)
	check(t, err)
	mappings := func() int { // this process is client and daemon
		maps, err := os.ReadFile("/proc/self/maps")
		check(t, err)
		return strings.Count(string(maps), "memfd:twice")
	}
	second := func() *client.Engine {
		e, err := client.Attach(background(t), client.EngineConfig{Socket: ph.cfg.EngineSocket, Engine: "twice-d", Revision: shape.Revision, Layout: shape.Layout, Segment: memory, FlagSlots: 16})
		check(t, err)
		return e
	}
	p, d := attachMemory(t, ph.cfg.EngineSocket, "twice-p", memory), attach(t, dh.cfg.EngineSocket, "d1")
	other := second()
	if s := ph.Core().Stats(); s.RegisteredBytes != segment || len(s.Engines) != 2 || mappings() != 2 {
		t.Fatalf("%d bytes of %d engines in %d mappings", s.RegisteredBytes, len(s.Engines), mappings())
	}

	m := newMove(t, ph, p, dh, d)
	m.open()
	m.announce(all()[:3]...)
	pulled := make(chan error, 1)
	go func() { _, err := m.pull(); pulled <- err }()
	eventually(t, "the pull is under way", func() bool { return dh.Core().Stats().PulledBytes > 0 })
	check(t, other.Close())
	eventually(t, "one is left", func() bool { return len(ph.Core().Engines()) == 1 })
	m.announce(all()[3:]...)
	check(t, m.seal())
	check(t, <-pulled)
	if !m.isEqual() || mappings() != 2 {
		t.Fatal("the pull was disturbed by the other registration's end", mappings())
	}

	other = second()
	n := newMove(t, ph, p, dh, d)
	n.open()
	n.announce(all()[:3]...)
	go func() { _, err := n.pull(); pulled <- err }()
	eventually(t, "the pull is under way", func() bool { return dh.Core().Stats().SourcesLive+dh.Core().Stats().TargetsLive > 0 })
	p.die(t) // and its own mapping goes with it
	if err := <-pulled; handoff.CodeOf(err) == handoff.CodeNone {
		t.Fatal("read from an engine that is gone")
	}
	eventually(t, "one registration holds it", func() bool { return len(ph.Core().Engines()) == 1 && mappings() == 1 })
	if s := ph.Core().Stats(); s.RegisteredBytes != segment {
		t.Fatal(s.RegisteredBytes)
	}
	check(t, other.Close())
	eventually(t, "the last one gives it back", func() bool { return mappings() == 0 && ph.Core().Stats().RegisteredBytes == 0 })
}
