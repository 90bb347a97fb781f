package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// A data folder that cannot be written refuses engines and says why, until it can.
func TestAFolderThatCannotBeWrittenRefusesEnginesAndSaysWhy(t *testing.T) {
	h := startHost(t, "td")
	block := filepath.Join(h.cfg.Data, "engines.next") // the file that is written first
	check(t, os.Mkdir(block, 0o700))
	mustRefuse(t, h, "cannot be recorded")
	check(t, os.Remove(block))
	mustAttach(t, h)
}

func mustRefuse(t *testing.T, h *host, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := tryAttach(t, ctx, h)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Fatal(err)
	}
	if len(h.Core().Engines()) != 0 {
		t.Fatal("it was attached")
	}
}

func mustAttach(t *testing.T, h *host) {
	t.Helper()
	check(t, tryAttach(t, background(t), h))
}

// tryAttach attaches an engine and lets it leave.
func tryAttach(t *testing.T, ctx context.Context, h *host) error {
	t.Helper()
	memory, err := client.NewMemory("segment", segment)
	check(t, err)
	defer func() { check(t, memory.Close()) }()
	e, err := client.Attach(ctx, client.EngineConfig{Socket: h.cfg.EngineSocket, Engine: "d1", Revision: shape.Revision, Layout: shape.Layout, Segment: memory, FlagSlots: 4})
	if err != nil {
		return err
	}
	return e.Close()
}

// smallDisk makes a file system that fills up soon, and gives a way to fill it. It is
// mounted nowhere, so that nothing of it outlives this process, however that ends.
func smallDisk(t *testing.T) (dir string, fill, empty func()) {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Skip("a small disk needs the right to mount: ", err)
	}
	defer func() { check(t, unix.Close(fs)) }()
	check(t, unix.FsconfigSetString(fs, "size", "128k"))
	check(t, unix.FsconfigCreate(fs))
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { check(t, unix.Close(root)) })
	dir = fmt.Sprint("/proc/self/fd/", root)
	ballast := filepath.Join(dir, "ballast")
	return dir, func() {
		err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}, func() { check(t, os.Remove(ballast)) }
}

// A full disk refuses engines, ends the trace file loudly, and a daemon that could
// not write its next life does not start; what runs goes on, and with room again
// everything is served, in a life of its own.
func TestAFullDiskRefusesAndSaysWhy(t *testing.T) {
	dir, fill, empty := smallDisk(t)
	log := &safeBuffer{}
	ph := startHost(t, "tp")
	dh := startHost(t, "td", func(c *daemon.Config) {
		c.Data, c.TraceFile, c.Log = dir, filepath.Join(dir, "trace.jsonl"), slog.New(slog.NewTextHandler(log, nil))
	})
	m := newMove(t, ph, attach(t, ph.cfg.EngineSocket, "p1"), dh, attach(t, dh.cfg.EngineSocket, "d2"))
	m.ready()
	fill()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := tryAttach(t, ctx, dh); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err)
	}
	_, err := m.pull() // what is attached goes on
	check(t, err)
	_, err = m.commit()
	check(t, err)
	eventually(t, "the end of the trace is told", func() bool {
		other := newMove(t, ph, m.p, dh, m.d)
		_, err := other.undo()
		check(t, err)
		return strings.Contains(log.String(), "trace file ends here")
	})
	if err := dh.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err) // the trace is not whole
	}
	if d, err := daemon.Start(dh.cfg); err == nil {
		check(t, d.Close())
		t.Fatal("a daemon started in a life that it could not write down")
	} else if !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err)
	}
	empty()
	before := dh.Incarnation()
	dh.start(t)
	if dh.Incarnation() != before+1 {
		t.Fatalf("life %d after %d", dh.Incarnation(), before)
	}
	if e := m.d.await(t, client.Reattached, m.plan.Attempt); len(e.Adopted) != 1 {
		t.Fatalf("the commit is lost: %+v", e)
	}
	check(t, tryAttach(t, background(t), dh))
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
