package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// The test binary is the daemon as well: with this variable set it runs main.
const roleVariable = "TRANSFERD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "daemon":
		if os.Getenv(forbiddenVariable) != "" {
			fmt.Fprintln(os.Stderr, beForbidden())
			os.Exit(1)
		}
		main()
		os.Exit(0)
	case "parent":
		beParent()
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "leaked goroutines:", err)
			code = 1
		}
	}
	os.Exit(code)
}

const (
	patience  = 15 * time.Second
	pieceSize = 64 << 10
	pieces    = 64
	segment   = pieces * pieceSize
)

var shape = handoff.Shape{Revision: "model@1", Layout: handoff.Digest{7}, Tokens: 64,
	Groups: []handoff.Group{{Name: "full", Layers: 1, Blocks: pieces, BlockBytes: pieceSize}}}

// process is one transferd as its own process.
type process struct {
	cmd     *exec.Cmd
	node    string
	data    string
	control *client.Control
	log     bytes.Buffer // to be read once it has ended
	Ready   bool
	Control string
	Peer    string
	Socket  string `json:"engine_socket"`
	Metrics string
	Life    uint64 `json:"incarnation"`
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, node, data, peer string, more ...string) *process {
	t.Helper()
	p := &process{node: node, data: data}
	p.cmd = exec.Command(os.Args[0], append([]string{"--node", node, "--data", data, "--peer", peer, "--die-with-parent"}, more...)...)
	p.cmd.Env = append(os.Environ(), roleVariable+"=daemon")
	p.cmd.Stderr = &p.log
	if testing.Verbose() {
		p.cmd.Stderr = io.MultiWriter(&p.log, os.Stderr)
	}
	out, err := p.cmd.StdoutPipe()
	check(t, err)
	check(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.kill(syscall.SIGKILL) })
	line, err := bufio.NewReader(out).ReadString('\n')
	check(t, err)
	check(t, json.Unmarshal([]byte(line), p))
	if !p.Ready {
		t.Fatal(line)
	}
	p.control, err = client.Dial(p.Control)
	check(t, err)
	t.Cleanup(func() { _ = p.control.Close() }) // closed already, where the test dialled anew
	return p
}

// kill ends the process and waits for it; a repeat does nothing.
func (p *process) kill(s syscall.Signal) error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.cmd.Process.Signal(s) // gone already is as good
	return p.cmd.Wait()
}

// stop stops every thread, and waits until the kernel says so.
func (p *process) stop(t *testing.T) {
	t.Helper()
	check(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	for end := time.Now().Add(patience); ; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		check(t, err)
		if _, state, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(state, "T") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it does not stop")
		}
	}
}

type engine struct {
	*client.Engine
	id     handoff.EngineID
	memory *client.Memory
}

func attach(t *testing.T, p *process, id handoff.EngineID) *engine {
	t.Helper()
	memory, err := client.NewMemory("segment", segment)
	check(t, err)
	return attachMemory(t, p, id, memory)
}

func attachMemory(t *testing.T, p *process, id handoff.EngineID, memory *client.Memory) *engine {
	t.Helper()
	e, err := client.Attach(background(t), client.EngineConfig{Socket: p.Socket, Engine: id, Revision: shape.Revision, Layout: shape.Layout, Segment: memory, FlagSlots: 4})
	check(t, err)
	t.Cleanup(func() {
		check(t, e.Close())
		check(t, memory.Close())
	})
	return &engine{e, id, memory}
}

// await reads events until one of kind k comes.
func (e *engine) await(t *testing.T, k client.EventKind) client.Event {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case ev := <-e.Events():
			if ev.Kind == k {
				return ev
			}
		case <-timeout:
			t.Fatalf("no %s at %s", k, e.id)
		}
	}
}

type move struct {
	plan  handoff.Plan
	token handoff.Token
	spec  client.PullSpec
}

// prepare opens both sides and announces and seals everything.
func prepare(t *testing.T, ph *process, p, d *engine, name handoff.HandoffID) *move {
	t.Helper()
	m := &move{plan: handoff.Plan{
		Attempt: handoff.Attempt{Handoff: name, Epoch: 1, Nonce: handoff.Nonce(rand.Uint64() | 1)},
		P:       handoff.Seat{Engine: p.id, Node: p.Node(), Incarnation: p.Incarnation()},
		D:       handoff.Seat{Engine: d.id, Node: d.Node(), Incarnation: d.Incarnation()},
		Reader:  handoff.Reader{Process: "gateway-1", Incarnation: 1, Number: 1}, BodyDigest: handoff.Digest{1}}}
	var offsets []uint64
	var all, digests []uint32
	for i := range uint32(pieces) {
		offsets = append(offsets, uint64(i)*pieceSize)
		all = append(all, i)
		b := p.memory.Bytes()[i*pieceSize : (i+1)*pieceSize]
		for k := 0; k < len(b); k += 64 {
			b[k] = byte(rand.Uint32())
		}
		digests = append(digests, client.Checksum(b))
	}
	var err error
	m.token, err = d.OpenTarget(background(t), client.TargetSpec{Plan: m.plan, Shape: shape, Offsets: offsets})
	check(t, err)
	g, err := p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: shape, Offsets: offsets})
	check(t, err)
	check(t, p.Announce(background(t), m.plan.Attempt, all, digests))
	check(t, p.Seal(background(t), m.plan.Attempt))
	m.spec = client.PullSpec{Plan: m.plan, Token: m.token, SourceAddress: ph.Peer, Capability: g.Capability}
	return m
}

func (m *move) commit(t *testing.T, d *process) (client.TargetAnswer, error) {
	return d.control.Commit(background(t), m.plan, m.token, m.plan.Attempt.Operation("commit"), 0)
}

func wantCode(t *testing.T, err error, c handoff.Code) {
	t.Helper()
	if err == nil || handoff.CodeOf(err) != c {
		t.Fatalf("got %v, want %s", err, c)
	}
}

func TestADaemonKilledAfterACommitAdoptsItAndAnswersTheRepeat(t *testing.T) {
	ph := start(t, "tp", t.TempDir(), "127.0.0.1:0")
	dh := start(t, "td", t.TempDir(), "127.0.0.1:0")
	p, d := attach(t, ph, "p1"), attach(t, dh, "d1")
	m := prepare(t, ph, p, d, "h-1")
	_, err := dh.control.Pull(background(t), m.spec, nil)
	check(t, err)
	ans, err := m.commit(t, dh)
	check(t, err)
	if ans.State != handoff.TargetCommitted || string(p.memory.Bytes()) != string(d.memory.Bytes()) {
		t.Fatalf("%+v", ans)
	}
	d.await(t, client.TargetCommitted)

	_ = dh.kill(syscall.SIGKILL) // the error says that it was killed
	d.await(t, client.Detached)
	if !d.IsVisible(0, m.plan.Attempt) {
		t.Fatal("the flag page lost the commit with the daemon")
	}
	next := start(t, "td", dh.data, dh.Peer)
	if next.Life != dh.Life+1 {
		t.Fatalf("life %d after %d", next.Life, dh.Life)
	}
	e := d.await(t, client.Reattached)
	if len(e.Adopted) != 1 || e.Adopted[0] != m.plan.Attempt || uint64(d.Incarnation()) != next.Life {
		t.Fatalf("%+v", e)
	}
	ans, err = m.commit(t, next)
	check(t, err)
	if ans.State != handoff.TargetCommitted || ans.Token != m.token {
		t.Fatalf("%+v", ans)
	}
	c, err := next.control.Undo(background(t), m.plan, "", client.Sides{Target: true})
	check(t, err)
	if c.Target != handoff.TargetCommitted {
		t.Fatalf("%+v", c)
	}
}

func TestAStoppedSourceIsNoticedWithinTheProgressDeadline(t *testing.T) {
	ph := start(t, "tp", t.TempDir(), "127.0.0.1:0")
	dh := start(t, "td", t.TempDir(), "127.0.0.1:0", "--progress-deadline", "700ms")
	p, d := attach(t, ph, "p1"), attach(t, dh, "d1")
	m := prepare(t, ph, p, d, "h-1")
	other := start(t, "te", t.TempDir(), "127.0.0.1:0") // whose deadline is the default
	late := prepare(t, ph, p, attach(t, other, "d2"), "h-2")
	ph.stop(t)
	longer := make(chan error, 1)
	go func() {
		_, err := other.control.Pull(background(t), late.spec, nil)
		longer <- err
	}()
	_, err := dh.control.Pull(background(t), m.spec, nil)
	wantCode(t, err, handoff.CodeProgress)
	select {
	case err := <-longer:
		t.Fatal("the flag is not heeded; the other one's pull has ended: ", err)
	default:
	}
	wantCode(t, <-longer, handoff.CodeProgress)
	d.await(t, client.TargetDrained)
	_, err = m.commit(t, dh)
	wantCode(t, err, handoff.CodeClosed)
	check(t, ph.cmd.Process.Signal(syscall.SIGCONT))
	_, err = dh.control.Pull(background(t), m.spec, nil) // coming back to life changes nothing
	wantCode(t, err, handoff.CodeProgress)
}

func TestTheDaemonEndsGracefullyAndReleasesItsFolder(t *testing.T) {
	data := t.TempDir()
	p := start(t, "tp", data, "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--trace", filepath.Join(data, "trace.jsonl"))
	second := exec.Command(os.Args[0], "--node", "tp", "--data", data)
	second.Env = append(os.Environ(), roleVariable+"=daemon")
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "held by another process") {
		t.Fatalf("a second daemon on one folder: %v: %s", err, out)
	}
	if err := p.kill(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if again := start(t, "tp", data, "127.0.0.1:0"); again.Life != p.Life+1 {
		t.Fatalf("life %d", again.Life)
	}
}

func TestPlaintextOffLoopbackIsRefused(t *testing.T) {
	for _, flag := range []string{"--peer", "--control"} {
		cmd := exec.Command(os.Args[0], "--node", "x", "--data", t.TempDir(), flag, "0.0.0.0:0")
		cmd.Env = append(os.Environ(), roleVariable+"=daemon")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "needs TLS") {
			t.Fatalf("%s: %v: %s", flag, err, out)
		}
	}
}

// beParent starts a daemon that is to die with it, and waits to be killed.
func beParent() {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"=daemon")
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

func TestTheDaemonEndsWithItsParent(t *testing.T) {
	data := t.TempDir()
	parent := exec.Command(os.Args[0], "--node", "tp", "--data", data, "--die-with-parent")
	parent.Env = append(os.Environ(), roleVariable+"=parent")
	out, err := parent.StdoutPipe()
	check(t, err)
	check(t, parent.Start())
	reader := bufio.NewReader(out)
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	check(t, parent.Process.Kill())
	if rest, err := reader.ReadString('\n'); err == nil { // the pipe ends with its last holder, the daemon
		t.Fatal(rest)
	}
	_ = parent.Wait() // it was killed
}

// TestAKillAtAnyMomentOfACommitLeavesOneTruth kills the daemon at a random moment
// around a commit: what the engine sees on its flag page is what the next life
// answers, and an acknowledged commit is never lost.
func TestAKillAtAnyMomentOfACommitLeavesOneTruth(t *testing.T) {
	ph := start(t, "tp", t.TempDir(), "127.0.0.1:0")
	dh := start(t, "td", t.TempDir(), "127.0.0.1:0")
	p, d := attach(t, ph, "p1"), attach(t, dh, "d1")
	for round := range 8 {
		m := prepare(t, ph, p, d, handoff.HandoffID(fmt.Sprint("h-", round)))
		_, err := dh.control.Pull(background(t), m.spec, nil)
		check(t, err)
		acknowledged := make(chan bool, 1)
		go func() {
			_, err := m.commit(t, dh)
			acknowledged <- err == nil
		}()
		<-time.After(time.Duration(rand.IntN(600)) * time.Microsecond) // the fault's moment, not an assertion
		_ = dh.kill(syscall.SIGKILL)
		wasAcknowledged := <-acknowledged
		dh = start(t, "td", dh.data, dh.Peer)
		e := d.await(t, client.Reattached)
		visible := d.IsVisible(0, m.plan.Attempt)
		if adopted := len(e.Adopted) == 1; adopted != visible || wasAcknowledged && !visible {
			t.Fatalf("round %d: acknowledged %v, visible %v, adopted %v", round, wasAcknowledged, visible, adopted)
		}
		ans, err := m.commit(t, dh)
		if visible {
			check(t, err)
			if ans.Token != m.token {
				t.Fatalf("%+v", ans)
			}
			check(t, d.FinishTarget(background(t), m.plan.Attempt))
		} else {
			wantCode(t, err, handoff.CodeStaleIncarnation)
		}
		d.await(t, client.TargetDrained)
		check(t, d.Freed(background(t), m.plan.Attempt, false))
	}
}
