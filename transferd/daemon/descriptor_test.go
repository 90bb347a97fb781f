package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// holds lists what a process has open or mapped whose name has text.
func (c *child) holds(t *testing.T, text string) (open, mapped []string) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.cmd.Process.Pid))
	check(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, text) {
			open = append(open, to)
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.cmd.Process.Pid))
	check(t, err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, text) {
			mapped = append(mapped, line)
		}
	}
	return open, mapped
}

// An engine's descriptor is closed by its daemon as soon as its memory is mapped, and
// no other daemon ever gets it, or a mapping: bytes alone travel.
func TestNoDescriptorOfAnEngineGoesToAThirdParty(t *testing.T) {
	ph, dh := startChild(t, "tp"), startChild(t, "td")
	s := newSoakPair(t, ph, dh, "fdtest", client.NewMemory, client.NewMemory)
	check(t, s.transfer(background(t)))
	for name, of := range map[string]struct {
		c, stranger *child
	}{"pfdtest": {ph, dh}, "dfdtest": {dh, ph}} {
		open, mapped := of.c.holds(t, "memfd:"+name)
		if len(open) != 0 || len(mapped) != 1 {
			t.Errorf("%s: its daemon has %q open, %q mapped", name, open, mapped)
		}
		if open, mapped := of.stranger.holds(t, "memfd:"+name); len(open)+len(mapped) != 0 {
			t.Errorf("%s: the other daemon has %q open, %q mapped", name, open, mapped)
		}
	}
}

// A read-only descriptor can be opened again for writing through /proc. Sealed
// against writers after its owner's mapping, the memory cannot be written by whoever
// does that; its owner writes on, its daemon reads, and it is refused as a target.
func TestASealedSourceCannotBeWrittenThroughItsDescriptor(t *testing.T) {
	memory, err := client.NewMemory("sealed", segment)
	check(t, err)
	again := func() error {
		f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", memory.File().Fd()), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, werr := f.WriteAt([]byte("stranger"), 0)
		m, merr := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if merr == nil {
			check(t, syscall.Munmap(m))
		}
		if (werr == nil) != (merr == nil) {
			t.Fatalf("written: %v, mapped: %v", werr, merr)
		}
		return errors.Join(werr, f.Close())
	}
	check(t, again()) // as long as it is not sealed, anybody who has the descriptor may
	check(t, memory.SealWriters())
	if err := again(); !errors.Is(err, os.ErrPermission) {
		t.Fatal(err)
	}
	ph, dh := startHost(t, "tp"), startHost(t, "td")
	p := attachMemory(t, ph.cfg.EngineSocket, "p1", memory)
	m := newMove(t, ph, p, dh, attach(t, dh.cfg.EngineSocket, "d1")) // which writes the source
	m.ready()
	_, err = m.pull()
	check(t, err)
	if !m.isEqual() {
		t.Fatal("bytes differ")
	}
	back := newMove(t, ph, p, ph, p)
	wantCode(t, back.openTarget(), handoff.CodeDenied)
}
