package daemon_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/internal/native/fakecuda"
)

// Device memory, with engines, daemons and the fake driver in processes of their
// own: a handle is never opened by the process that it is of.

func onDevice(fake fakecuda.Fake, n int) memoryOf {
	return func(_ string, bytes int) (*client.Memory, error) {
		return client.NewDeviceMemory(fake.Path, fakecuda.Device(n), uint64(bytes))
	}
}

// sglang#12073, vllm-project/vllm#44238, kvcache-ai/vllm#3, kvcache-ai/Mooncake#4004
// the engine reads the right bytes from its device right after the commit.
// The fake driver moves nothing before its stream is waited for, so a daemon that
// forgot it would show what was there before.
func TestDeviceMemoryHoldsTheBytesWhenTheCommitIsAnswered(t *testing.T) {
	fake := fakecuda.Build(t)
	ph, dh := startChild(t, "tp", cudaVariable+"="+fake.Path), startChild(t, "td", cudaVariable+"="+fake.Path)
	t.Run("transfers", func(t *testing.T) {
		for name, kinds := range map[string][2]memoryOf{
			"dd": {onDevice(fake, 0), onDevice(fake, 1)}, "dm": {onDevice(fake, 1), client.NewMemory}, "md": {client.NewMemory, onDevice(fake, 0)},
		} {
			s := newSoakPair(t, ph, dh, name, kinds[0], kinds[1])
			for range 5 {
				check(t, s.transfer(background(t)))
			}
		}
		same := newSoakPair(t, ph, ph, "one-daemon", onDevice(fake, 0), onDevice(fake, 1))
		check(t, same.transfer(background(t)))
	})
	ph.end(t)
	dh.end(t)
	fake.MustBeClean(t)
}

// vllm-project/vllm#58063: an engine dies; its daemon closes the handle of
// its memory without a new handshake, so that a replacement finds room.
func TestADeadEnginesDeviceMemoryIsNotHeld(t *testing.T) {
	fake := fakecuda.Build(t)
	h := startChild(t, "tp", cudaVariable+"="+fake.Path)
	m, err := client.NewDeviceMemory(fake.Path, fakecuda.Device(0), 1<<20)
	check(t, err)
	e, err := client.Attach(background(t), client.EngineConfig{Socket: h.Socket, Engine: "p1", Revision: shape.Revision, Layout: shape.Layout, Segment: m, FlagSlots: 1})
	check(t, err)
	lines, _ := fake.Log(t)
	if fakecuda.Count(lines, "ipc_open") != 1 || fakecuda.Count(lines, "ipc_close") != 0 {
		t.Fatal(lines)
	}
	check(t, e.Close())
	eventually(t, "the handle is closed", func() bool {
		lines, _ := fake.Log(t)
		return fakecuda.Count(lines, "ipc_close") == 1
	})
	check(t, m.Close())
	h.end(t)
	fake.MustBeClean(t)
}

// A device whose copies cannot be waited for: when its context can be destroyed,
// nothing lands any more and the target is drained; when it cannot, the target is
// quarantined for as long as the daemon lives, and its death is what frees it.
func TestADeviceThatBreaksIsDestroyedOrQuarantined(t *testing.T) {
	for name, stuck := range map[string]bool{"destroyed": false, "quarantined": true} {
		t.Run(name, func(t *testing.T) {
			fake := fakecuda.Build(t)
			ph := startChild(t, "tp")
			env := []string{cudaVariable + "=" + fake.Path, "FAKE_CUDA_BREAK=1", "FAKE_CUDA_LATE=150"}
			if stuck {
				env = append(env, "FAKE_CUDA_STUCK=1")
			}
			dh := startChild(t, "td", env...)
			s := newSoakPair(t, ph, dh, "x", client.NewMemory, onDevice(fake, 0))
			o, err := s.open(background(t))
			check(t, err)
			_, err = dh.control.Pull(background(t), o.spec, nil)
			wantCode(t, err, handoff.CodeEngine)
			_, err = dh.control.Commit(background(t), o.plan, o.token, o.plan.Attempt.Operation("commit"), 0)
			wantCode(t, err, handoff.CodeClosed)
			if !stuck {
				check(t, s.free(background(t), s.d, o.plan.Attempt, client.TargetDrained))
				check(t, s.dm.WriteAt(0, make([]byte, s.dm.Size()))) // the next request's
				eventuallyAfter(t, 300*time.Millisecond)
				got := make([]byte, s.dm.Size())
				check(t, s.dm.ReadAt(0, got))
				if strings.Trim(string(got), "\x00") != "" {
					t.Fatal("a late byte landed in drained memory")
				}
				return
			}
			if now := dh.footprint(t); now.Quarantined != soakShape.Bytes() {
				t.Fatalf("%+v", now)
			}
			eventually(t, "it landed late", func() bool {
				lines, _ := fake.Log(t)
				return fakecuda.Count(lines, "late") == 1
			})
			if err := s.d.Freed(background(t), o.plan.Attempt, false); handoff.CodeOf(err) != handoff.CodeNotReady {
				t.Fatal(err)
			}
			dh.kill()
			next := startLife(t, "td", dh.data, cudaVariable+"="+fake.Path)
			check(t, s.free(background(t), s.d, o.plan.Attempt, client.TargetDrained))
			s.dh = next
			check(t, s.transfer(background(t)))
		})
	}
}

func TestAHostWithoutADriverRefusesDeviceMemoryAndNothingElse(t *testing.T) {
	fake := fakecuda.Build(t)
	h := startChild(t, "tp", cudaVariable+"=libno-such-cuda.so.1")
	m, err := client.NewDeviceMemory(fake.Path, fakecuda.Device(0), 1<<20)
	check(t, err)
	defer func() { check(t, m.Close()) }()
	cfg := client.EngineConfig{Socket: h.Socket, Engine: "p1", Revision: shape.Revision, Layout: shape.Layout, Segment: m, FlagSlots: 1}
	_, err = client.Attach(background(t), cfg)
	wantCode(t, err, handoff.CodeDenied)
	if cfg.Segment, err = client.NewMemory("m", 1<<20); err != nil {
		t.Fatal(err)
	}
	e, err := client.Attach(background(t), cfg)
	check(t, err)
	check(t, errors.Join(e.Close(), cfg.Segment.Close()))
}

// Mooncake#2017, #364, #304 for device memory: what the allocation does not
// have is refused when it is registered.
func TestMoreThanTheAllocationIsRefused(t *testing.T) {
	fake := fakecuda.Build(t)
	h := startChild(t, "tp", cudaVariable+"="+fake.Path)
	own, err := client.NewDeviceMemory(fake.Path, fakecuda.Device(0), 1<<20)
	check(t, err)
	defer func() { check(t, own.Close()) }()
	where := own.Device()
	for _, change := range []func(*client.DeviceMemory){
		func(d *client.DeviceMemory) { d.Bytes++ }, func(d *client.DeviceMemory) { d.Offset = 1 }, func(d *client.DeviceMemory) { d.Offset = ^uint64(0) },
		func(d *client.DeviceMemory) { d.Device[0] ^= 1 }, func(d *client.DeviceMemory) { d.Handle[0] ^= 1 }, func(d *client.DeviceMemory) { d.Bytes = 0 },
	} {
		d := where
		change(&d)
		_, err := client.Attach(background(t), client.EngineConfig{Socket: h.Socket, Engine: "p1", Revision: shape.Revision, Layout: shape.Layout, Segment: client.LendDeviceMemory(d), FlagSlots: 1})
		wantCode(t, err, handoff.CodeInvalid)
	}
	e, err := client.Attach(background(t), client.EngineConfig{Socket: h.Socket, Engine: "p1", Revision: shape.Revision, Layout: shape.Layout, Segment: client.LendDeviceMemory(where), FlagSlots: 1})
	check(t, err)
	check(t, e.Close())
}
