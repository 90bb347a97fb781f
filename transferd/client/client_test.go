package client

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAChecksumIsCRC32C(t *testing.T) {
	if got := Checksum([]byte("123456789")); got != 0xe3069283 {
		t.Fatalf("%x", got)
	}
}

func TestFloatsAndBytesAreOneMemory(t *testing.T) {
	m, err := NewMemory("m", 4096)
	if err != nil {
		t.Fatal(err)
	}
	m.Floats()[0] = 1
	if len(m.Floats()) != 1024 || m.Bytes()[3] != 0x3f {
		t.Fatalf("% x", m.Bytes()[:4])
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewMemory("m", 0); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Fatal(err)
	}
}

func TestPlaintextToAnotherHostIsRefused(t *testing.T) {
	for _, address := range []string{"10.0.0.1:80", "example.com:80", "0.0.0.0:1", "nonsense"} {
		if _, err := Dial(address); handoff.CodeOf(err) != handoff.CodeDenied {
			t.Fatalf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"127.0.0.1:1", "[::1]:1", "unix:///tmp/x"} {
		c, err := Dial(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAttachGivesUpWithItsContextAndLeavesNothingBehind(t *testing.T) {
	m, err := NewMemory("m", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	files := openFiles(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = Attach(ctx, EngineConfig{Socket: t.TempDir() + "/nobody", Engine: "e", Revision: "r", Segment: m, FlagSlots: 1})
	if handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
	if now := openFiles(t); now > files {
		t.Fatalf("%d descriptors, before %d", now, files)
	}
	for _, cfg := range []EngineConfig{
		{Engine: "E!", Segment: m, FlagSlots: 1}, {Engine: "e", FlagSlots: 1}, {Engine: "e", Segment: m}, {Engine: "e", Segment: m, FlagSlots: MaxFlagSlots + 1},
	} {
		if _, err := Attach(context.Background(), cfg); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Fatal(err)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestEventsWaitForTheirReaderWithoutHoldingAnybodyBack(t *testing.T) {
	q := newQueue()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.run(stop)
	}()
	const n = 10_000
	for i := range n {
		q.put(Event{Attempt: handoff.Attempt{Nonce: handoff.Nonce(i)}})
	}
	for i := range n {
		if e := <-q.out; e.Attempt.Nonce != handoff.Nonce(i) {
			t.Fatalf("event %d came as %d", e.Attempt.Nonce, i)
		}
	}
	close(stop)
	<-done
	if _, open := <-q.out; open {
		t.Fatal("still open")
	}
}
