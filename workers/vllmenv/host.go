package vllmenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	loadWithin = 5 * time.Minute // some 20 s of CPU time
	stopWithin = 15 * time.Second
)

// settings are what vLLM on two busy cores needs to be told: no compiler at the
// first request, no threads, no hub, one process less for each engine.
var settings = []string{
	"VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1", "VLLM_CPU_CI_ENV=1", "TORCHDYNAMO_DISABLE=1", "VLLM_ENABLE_V1_MULTIPROCESSING=0",
	"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_LOGGING_COLOR=0", "PYTHONDONTWRITEBYTECODE=1",
}

// SocketsIn is the environment entry that has vLLM make its own sockets in dir and
// not in the system's folder for temporary files: one that is killed leaves them.
func SocketsIn(dir string) string { return "VLLM_RPC_BASE_PATH=" + dir }

// environ is what vLLM's Python needs besides its caller's environment.
func (e Env) environ() []string {
	return append([]string{"LD_LIBRARY_PATH=" + e.Stubs, "PYTHONPATH=" + e.Path}, settings...)
}

// Host is one Python that has imported vLLM. Its engines are forks of it: the
// import costs some 20 s of CPU time once, an engine three. Close it.
type Host struct {
	env    Env
	dir    string // of logs
	cmd    *exec.Cmd
	orders io.WriteCloser
	over   chan struct{} // closed once it ended

	mu      sync.Mutex
	engines map[string]*Engine
	started map[string]chan int // asked for, by name
	// CPU is what the import took.
	CPU time.Duration
}

// Load starts a host and waits until vLLM is imported. Logs and sockets go to dir.
func (e Env) Load(ctx context.Context, dir string) (*Host, error) {
	logs, err := os.OpenFile(filepath.Join(dir, "vllm-host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	h := &Host{env: e, dir: dir, over: make(chan struct{}), engines: map[string]*Engine{}, started: map[string]chan int{}}
	h.cmd = exec.Command(e.Python, e.Host)
	h.cmd.Env = append(append(os.Environ(), e.environ()...), SocketsIn(dir))
	h.cmd.Dir, h.cmd.Stderr = dir, logs
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is ours to handle
	if h.orders, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	answers, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// It ends with its standard input, so with this process, however that ends.
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan time.Duration, 1)
	go h.listen(answers, ready)
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	select {
	case h.CPU = <-ready:
		return h, nil
	case <-h.over:
		return nil, errors.Join(errors.New("vLLM was not imported"), last(logs.Name()))
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), h.Close(), last(logs.Name()))
	}
}

// answer is one line of the host.
type answer struct {
	Ready   bool    `json:"ready"`
	CPU     float64 `json:"cpu_seconds"`
	Started string  `json:"started"`
	PID     int     `json:"pid"`
	Gone    string  `json:"gone"`
}

// listen takes the host's answers until it ends; with it, all its engines have.
func (h *Host) listen(answers io.Reader, ready chan<- time.Duration) {
	defer close(h.over)
	lines := bufio.NewScanner(answers)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue // nothing of ours
		}
		h.mu.Lock()
		switch {
		case a.Ready:
			ready <- time.Duration(a.CPU * float64(time.Second))
		case a.Started != "" && h.started[a.Started] != nil:
			h.started[a.Started] <- a.PID
			delete(h.started, a.Started)
		case a.Gone != "" && h.engines[a.Gone] != nil:
			close(h.engines[a.Gone].gone)
			delete(h.engines, a.Gone)
		}
		h.mu.Unlock()
	}
	_ = h.cmd.Wait() // it is killed, or told by its input's end; either is no news
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, e := range h.engines {
		close(e.gone)
		delete(h.engines, name)
	}
}

// Close kills the engines and ends the host.
func (h *Host) Close() error {
	err := h.orders.Close()
	select {
	case <-h.over:
	case <-time.After(stopWithin):
		err = errors.Join(err, fmt.Errorf("vLLM did not end within %s", stopWithin), h.cmd.Process.Kill())
		<-h.over
	}
	return err
}

// last is the end of a log, as an error that tells it.
func last(path string) error {
	const most = 4 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.New(string(text[max(0, len(text)-most):]))
}
