package daemon_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// present says PULL with a capability as a node in a life, then asks for pieces; it
// gives the refusal, and fails the test when a byte of memory comes.
func (m *move) present(as handoff.NodeID, life handoff.Incarnation, a handoff.Attempt, token []byte, runs ...wire.Run) handoff.Code {
	m.t.Helper()
	c := dial(m.t, m.ph)
	c.hello(as, life, m.ph)
	c.send(wire.AppendPull(nil, wire.Pull{Attempt: a, Capability: token}))
	if len(runs) > 0 {
		c.send(wire.AppendRuns(nil, wire.KindRead, runs))
	}
	for {
		switch k, b := c.next(); k {
		case wire.KindData:
			m.t.Fatal("a byte was served")
		case wire.KindError:
			e, err := wire.ParseError(b)
			check(m.t, err)
			return e.Code
		}
	}
}

// Capabilities that are forged, stolen, replayed or widened are refused by type and
// counted, and each is a line of the audit; no byte is served. An expired one: fence,
// TestAnExpiredCapabilityIsRefused.
func TestAttackByCapability(t *testing.T) {
	log := &safeBuffer{}
	ph, p, dh, d := pair(t, func(c *daemon.Config) { c.Audit = slog.New(slog.NewTextHandler(log, nil)) })
	m := newMove(t, ph, p, dh, d)
	other := newMove(t, m.ph, m.p, m.dh, m.d)
	for i := range m.from { // places of their own
		m.from[i], other.from[i] = uint64(i)*blockBytes, uint64(i+len(m.from))*blockBytes
	}
	m.ready()
	check(t, other.openSource())
	narrow, err := capability.Attenuate(m.capability, capability.Range{From: 0, To: 2})
	check(t, err)
	widened := append([]byte(nil), narrow...) // its link says more than it was narrowed to
	widened[len(widened)-32-4] = byte(shape.Pieces())
	flipped := append([]byte(nil), m.capability...)
	flipped[rand.IntN(len(flipped))] ^= 1 << rand.IntN(8)
	random := make([]byte, len(m.capability))
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	a, life := m.plan.Attempt, m.dh.Incarnation()
	for name, attack := range map[string]struct {
		as    handoff.NodeID
		life  handoff.Incarnation
		of    handoff.Attempt
		token []byte
		runs  []wire.Run
	}{
		"forged: a bit":                      {"td", life, a, flipped, nil},
		"forged: noise":                      {"td", life, a, random, nil},
		"forged: nothing":                    {"td", life, a, nil, nil},
		"stolen: by another daemon":          {"thief", life, a, m.capability, nil},
		"stolen: by D's life before":         {"td", life - 1, a, m.capability, nil},
		"replayed: for another attempt":      {"td", life, other.plan.Attempt, m.capability, nil},
		"replayed: for the next epoch":       {"td", life, handoff.Attempt{Handoff: a.Handoff, Epoch: a.Epoch + 1, Nonce: a.Nonce}, m.capability, nil},
		"widened: a link is changed":         {"td", life, a, widened, nil},
		"widened: a link is cut off":         {"td", life, a, narrow[:len(narrow)-8], nil},
		"narrowed: the rest is asked for":    {"td", life, a, narrow, []wire.Run{{First: 2, Count: 1}}},
		"narrowed: over the edge by a piece": {"td", life, a, narrow, []wire.Run{{First: 1, Count: 2}}},
	} {
		before := m.ph.Core().Stats().Refusals
		line := fmt.Sprintf("act=refuse side=source event=refuse-read handoff=%s epoch=%d ", attack.of.Handoff, attack.of.Epoch)
		lines := strings.Count(log.String(), line)
		code := m.present(attack.as, attack.life, attack.of, attack.token, attack.runs...)
		want := []handoff.Code{handoff.CodeDenied}
		switch {
		case attack.life != life:
			want = []handoff.Code{handoff.CodeStaleIncarnation}
		case name == "forged: a bit": // of P's life, or of a length
			want = append(want, handoff.CodeStaleIncarnation, handoff.CodeInvalid)
		}
		if !slices.Contains(want, code) {
			t.Errorf("%s: %s, want %s", name, code, want)
		}
		if after := m.ph.Core().Stats().Refusals; after[code] == before[code] {
			t.Errorf("%s: the refusal was not counted", name)
		}
		eventually(t, name+" is in the audit", func() bool { return strings.Count(log.String(), line) == lines+1 })
	}
	_, err = m.pull() // the holder still may
	check(t, err)
	m.p.await(t, client.SourceDrained, a)
	if code := m.present("td", life, a, m.capability); code.Advice() == handoff.RetrySame {
		t.Fatalf("replayed after it was used: %s", code)
	}
}

const intruderVariable = "SUREHAND_TEST_INTRUDER"

// beIntruder is a process of another user: it attaches as an engine, and asks the
// control side, as the real ones do, and says how far it came.
func beIntruder(sockets []string) int {
	try := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		time.AfterFunc(2*time.Second, cancel)
		return ctx
	}
	memory, err := client.NewMemory("m", segment)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, err = client.Attach(try(), client.EngineConfig{Socket: sockets[0], Engine: "intruder", Revision: shape.Revision, Layout: shape.Layout, Segment: memory, FlagSlots: 1})
	fmt.Println("attach:", handoff.CodeOf(err))
	control, err := client.Dial("unix://" + sockets[1])
	if err == nil {
		_, err = control.Describe(try(), false)
	}
	fmt.Println("describe:", handoff.CodeOf(err))
	return 0
}

// Another user's process reaches both sockets, because their modes were opened, and
// is turned away before a byte of it is read.
func TestAttackByAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	log := &safeBuffer{}
	h := startHost(t, "tp", func(c *daemon.Config) {
		c.Log = slog.New(slog.NewTextHandler(log, nil))
		c.Audit = c.Log
	})
	binary := filepath.Join(t.TempDir(), "intruder")
	text, err := os.ReadFile(os.Args[0])
	check(t, err)
	check(t, os.WriteFile(binary, text, 0o755))
	sockets := []string{h.cfg.EngineSocket, strings.TrimPrefix(h.cfg.Control, "unix://")}
	for _, path := range append(sockets, binary) {
		for dir := filepath.Dir(path); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			check(t, os.Chmod(dir, 0o755))
		}
	}
	for _, s := range sockets {
		check(t, os.Chmod(s, 0o777))
	}
	cmd := exec.Command(binary)
	cmd.Env = []string{intruderVariable + "=" + strings.Join(sockets, " ")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	check(t, err)
	if string(out) != "attach: unavailable\ndescribe: unavailable\n" { // each connection was closed at once
		t.Fatalf("the intruder got %q", out)
	}
	for _, line := range []string{"act=refuse side=engine event=connect peer=\"\" code=denied", "act=refuse side=control event=connect peer=\"uid 65534\" code=denied"} {
		if !strings.Contains(log.String(), line) {
			t.Fatalf("no %s in %s", line, log.String())
		}
	}
	if len(h.Core().Engines()) != 0 {
		t.Fatal("it attached")
	}
}

// Every listener of a secured daemon is probed in plaintext, with garbage, with
// half-said and never-ending greetings and with nothing at all. Nothing but TLS
// alerts comes back, every connection is closed by the daemon, and it serves on.
func TestAttackOnEveryPort(t *testing.T) {
	a := newAuthority(t)
	log := &safeBuffer{}
	h := startHost(t, "tp", secure(a, "tp"), func(c *daemon.Config) {
		c.Metrics = "127.0.0.1:0"
		c.Audit = slog.New(slog.NewTextHandler(log, nil))
	})
	var wg sync.WaitGroup
	hello := wire.AppendHello(nil, wire.Hello{From: "td", FromIncarnation: 1, To: "tp", ToIncarnation: h.Incarnation()})
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	clientHello := []byte{22, 3, 1, 0x40, 0} // a TLS record of 16 KiB that never comes
	for port, address := range map[string]string{"peer": h.PeerAddress(), "control": h.ControlAddress()} {
		for name, probe := range map[string][]byte{
			"plaintext": hello, "http": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "http2": []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
			"noise": noise, "half a greeting": clientHello, "nothing": nil, "a frame bomb": wire.AppendHeader(nil, wire.KindData, 1<<31),
		} {
			wg.Go(func() {
				answer, err := probed(address, probe)
				if err != nil {
					t.Errorf("%s, %s: the daemon keeps the connection: %v", port, name, err)
				}
				if len(answer) > 0 && answer[0] != 21 { // an alert
					t.Errorf("%s, %s: %d bytes in clear: %q", port, name, len(answer), answer[:min(len(answer), 40)])
				}
			})
		}
	}
	for name, probe := range map[string]string{"half a request": "GET /metrics HTT", "an endless header": "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20), "nothing": ""} {
		wg.Go(func() {
			if answer, err := probed(h.MetricsAddress(), []byte(probe)); err != nil || bytes.Contains(answer, []byte("surehand")) {
				t.Errorf("metrics, %s: %v, %q", name, err, answer)
			}
		})
	}
	wg.Go(func() { trickle(t, h.PeerAddress(), nil, hello) })
	wg.Go(func() { // a slow peer with a right certificate
		cfg := a.config("td")
		cfg.ServerName = "tp"
		trickle(t, h.PeerAddress(), cfg, hello)
	})
	wg.Wait()
	for _, who := range []string{"peer", "control"} {
		lines := func(code string) (n int) {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "act=refuse side="+who+" event=connect") && strings.Contains(line, " code="+code+" ") {
					n++
				}
			}
			return n
		}
		if lines("denied") < 5 || lines("progress") < 2 {
			t.Errorf("some of who was turned away at the %s side have no line: %s", who, log.String())
		}
	}
	cfg := a.config("orchestrator")
	cfg.ServerName = "tp"
	c, err := tls.Dial("tcp", h.ControlAddress(), cfg)
	check(t, err)
	check(t, c.Close())
}

// probed says something and reads until the other side closes, which it must do by
// itself.
func probed(address string, probe []byte) ([]byte, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		return nil, err
	}
	_, _ = c.Write(probe) // it may be closed already
	answer, err := io.ReadAll(c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return answer, err
	}
	return answer, nil // reset is as good as closed
}

// trickle says a greeting byte by byte, for longer than anybody may take.
func trickle(t *testing.T, address string, secure *tls.Config, text []byte) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	if secure != nil {
		c = tls.Client(c, secure)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	for i := 0; ; i++ {
		if _, err := c.Write(text[i%(len(text)-1):][:1]); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("the daemon listens to a slow peer for ever")
			}
			return
		}
		<-time.After(100 * time.Millisecond) // the peer's slowness
	}
}
