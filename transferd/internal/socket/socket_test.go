package socket

import (
	"encoding/binary"
	"net"
	"runtime"
	"testing"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

func ends(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	l, err := native.ListenPrivate(t.TempDir() + "/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	x, y := New(a.(*net.UnixConn)), New(b)
	t.Cleanup(func() { _, _ = x.Close(), y.Close() })
	return x, y
}

func soon() time.Time { return time.Now().Add(5 * time.Second) }

func TestMessagesComeInOrder(t *testing.T) {
	a, b := ends(t)
	offsets := make([]uint64, 200_000)
	go func() {
		_ = a.SendFirst(soon(), &transferv1.EngineMessage{Id: 1})
		_ = a.Send(soon(), &transferv1.EngineMessage{Id: 2}, &transferv1.EngineMessage{Id: 3, Body: &transferv1.EngineMessage_OpenTarget{
			OpenTarget: &transferv1.OpenTarget{Offsets: offsets}}})
	}()
	m := new(transferv1.EngineMessage)
	if files, err := b.ReceiveFirst(m); err != nil || len(files) != 0 || m.GetId() != 1 {
		t.Fatal(m, files, err)
	}
	for id := uint64(2); id <= 3; id++ {
		m = new(transferv1.EngineMessage)
		if err := b.Receive(m); err != nil || m.GetId() != id {
			t.Fatal(m, err)
		}
	}
	if len(m.GetOpenTarget().GetOffsets()) != len(offsets) {
		t.Fatal("cut")
	}
}

func TestAFrameBombIsRefusedWithoutAllocation(t *testing.T) {
	for name, receive := range map[string]func(*Conn) error{
		"later": func(c *Conn) error { return c.Receive(new(transferv1.EngineMessage)) },
		"first": func(c *Conn) error { _, err := c.ReceiveFirst(new(transferv1.EngineMessage)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := ends(t)
			bomb := binary.LittleEndian.AppendUint32(nil, 1<<31)
			if _, err := a.Unix().Write(bomb); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := receive(b)
			runtime.ReadMemStats(&after)
			if handoff.CodeOf(err) != handoff.CodeTooLarge {
				t.Fatal(err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
				t.Fatalf("%d bytes were allocated", grown)
			}
		})
	}
}

func TestAClaimedLengthIsNotAllocatedBeforeItCame(t *testing.T) {
	a, b := ends(t)
	head := binary.LittleEndian.AppendUint32(nil, MaxFrameBytes)
	if _, err := a.Unix().Write(append(head, 1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := b.Receive(new(transferv1.EngineMessage))
	runtime.ReadMemStats(&after)
	if err == nil || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Fatal(err, after.TotalAlloc-before.TotalAlloc)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	a, b := ends(t)
	if _, err := a.Unix().Write([]byte{3, 0, 0, 0, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := b.Receive(new(transferv1.EngineMessage)); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Fatal(err)
	}
}
