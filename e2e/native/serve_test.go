package native

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/e2e/fleet"
)

const within = 30 * time.Second

var programs fleet.Programs

var history string // the address of Temporal

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts one Temporal for all tests; each has its own serve and engines.
func run(m *testing.M) int {
	if flag.Parse(); testing.Short() {
		return m.Run() // every test skips itself
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	var err error
	if programs, err = fleet.Build(ctx, patient); err != nil {
		if errors.Is(err, fleet.ErrNoTemporal) {
			println("skipped:", err.Error())
			return 0
		}
		println(err.Error())
		return 1
	}
	dir, err := os.MkdirTemp("", "native")
	if err != nil {
		println(err.Error())
		return 1
	}
	defer os.RemoveAll(dir)
	p, ready, err := start(programs.Temporal, "--data", dir, "--listen", "127.0.0.1:0", "--ui", "")
	if err != nil {
		println(err.Error())
		return 1
	}
	defer p.kill()
	history = ready["frontend"].(string)
	return m.Run()
}

// process is a child that says {"ready":true,…} on stdout.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

func start(path string, args ...string) (*process, map[string]any, error) {
	c := exec.Command(path, args...)
	c.Stderr = os.Stderr
	if os.Getenv("SUREHAND_E2E_LOG") == "" {
		c.Stderr = nil
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(); err != nil {
		return nil, nil, err
	}
	p := &process{cmd: c, gone: make(chan struct{})}
	line := make(chan []byte, 1)
	go func() {
		defer close(p.gone)
		s := bufio.NewScanner(out)
		if s.Scan() {
			line <- append([]byte(nil), s.Bytes()...)
		}
		close(line)
		for s.Scan() {
		}
		_ = c.Wait() // it is killed in the end
	}()
	select {
	case b := <-line:
		ready := map[string]any{}
		if err := json.Unmarshal(b, &ready); err != nil || ready["ready"] != true {
			p.kill()
			return nil, nil, errors.New(path + " did not say that it is ready")
		}
		return p, ready, nil
	case <-time.After(within):
		p.kill()
		return nil, nil, errors.New(path + " was not ready in time")
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.gone
}

// world is one serve in front of engines of its own.
type world struct {
	t     *testing.T
	p, d  []*vllmtest.Engine
	args  []string
	queue string // of Temporal's tasks
	http  string
	serve *process
	temp  client.Client
}

func newWorld(t *testing.T, ps, ds []vllmtest.Options, args ...string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes")
	}
	n := vllmtest.NewNetwork()
	w := &world{t: t, queue: "native-" + t.Name()}
	w.args = append([]string{"serve", "--temporal", history, "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--task-queue", w.queue}, args...)
	for _, o := range ps {
		e := n.Start(t, o)
		w.p, w.args = append(w.p, e), append(w.args, "--prefill", e.URL())
	}
	for _, o := range ds {
		e := n.Start(t, o)
		w.d, w.args = append(w.d, e), append(w.args, "--decode", e.URL())
	}
	var err error
	if w.temp, err = client.Dial(client.Options{HostPort: history, Logger: quiet{}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.temp.Close)
	w.start()
	t.Cleanup(func() { w.serve.kill() })
	return w
}

// start brings serve up and waits until it could serve a request.
func (w *world) start() {
	w.t.Helper()
	p, ready, err := start(programs.Surehand, w.args...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.serve, w.http = p, "http://"+ready["http"].(string)
	w.eventually("serve is ready", func() bool { return w.get("/readyz") == 200 })
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("did not come true in time: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// rest says that no engine holds or runs anything, and no workflow is open.
func (w *world) rest() {
	w.t.Helper()
	for _, p := range w.p {
		w.eventually("P holds nothing", func() bool { return p.Held() == 0 })
	}
}

// quiet drops Temporal's log.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
