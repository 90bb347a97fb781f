package fleet

import (
	"bufio"
	"cmp"
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

// Budgets of one process.
const (
	readyWithin = 30 * time.Second
	stopWithin  = 30 * time.Second // a gateway lets its streams finish
	pollEvery   = 10 * time.Millisecond
)

// spec says how a process is started, each time anew.
type spec struct {
	name    string
	path    string
	args    []string
	env     []string                    // beside this process's own
	says    bool                        // prints {"ready":true,…} on stdout once it serves
	answers func(context.Context) error // nil once it serves; nil: its line is enough
	listens []string                    // addresses that others reach it at
	as      *syscall.Credential         // whom it runs as; nil: as this process
	work    string                      // its working directory; empty: the fleet's
}

// Process is one named process over all its lives.
type Process struct {
	spec
	dir   string
	spawn *spawner

	mu   sync.Mutex
	life *life // nil before the first start
	born int
}

// life is one run of a process.
type life struct {
	cmd    *exec.Cmd
	ready  chan struct{} // closed by the line that says so
	exited chan struct{}
	err    error // of the exit; to be read after exited
}

// Name of the process.
func (p *Process) Name() string { return p.name }

// Listens are the addresses at which the others reach the process.
func (p *Process) Listens() []string { return p.listens }

// Start runs the process and waits until it serves.
func (p *Process) Start(ctx context.Context) error {
	l, err := p.launch()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if p.says {
		select {
		case <-l.ready:
		case <-l.exited:
			return p.died(l)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, ctx.Err(), p.Tail())
		}
	}
	return p.serves(ctx, l)
}

func (p *Process) serves(ctx context.Context, l *life) error {
	if p.answers == nil {
		return nil
	}
	for {
		err := p.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-l.exited:
			return p.died(l)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, err, p.Tail())
		case <-time.After(pollEvery):
		}
	}
}

func (p *Process) died(l *life) error {
	return fmt.Errorf("%s ended at its start: %w\n%s", p.name, l.err, p.Tail())
}

func (p *Process) launch() (*life, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil && !p.life.over() {
		return nil, fmt.Errorf("%s runs already", p.name)
	}
	p.born++
	logs, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &life{cmd: exec.Command(p.path, p.args...), ready: make(chan struct{}), exited: make(chan struct{})}
	l.cmd.Dir, l.cmd.Stderr = cmp.Or(p.work, p.dir), logs
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	if len(p.env) > 0 {
		l.cmd.Env = append(os.Environ(), p.env...)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	if err := p.spawn.start(l.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.name, err), logs.Close())
	}
	p.life = l
	go func() {
		l.read(out, logs) // to the end of the process
		l.err = l.cmd.Wait()
		_ = logs.Close()
		close(l.exited)
	}()
	return l, nil
}

// read looks for the line that says ready, and keeps the rest as a log.
func (l *life) read(out io.Reader, logs io.Writer) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var said struct{ Ready bool }
		if json.Unmarshal(line, &said) == nil && said.Ready {
			close(l.ready)
			_, _ = io.Copy(logs, lines)
			return
		}
		if _, failed := logs.Write(line); failed != nil || err != nil {
			return
		}
	}
}

func (l *life) over() bool {
	select {
	case <-l.exited:
		return true
	default:
		return false
	}
}

func (p *Process) log() string { return filepath.Join(p.dir, p.name+".log") }

// Tail is the end of what the process logged, over all its lives.
func (p *Process) Tail() string {
	const most = 4 << 10
	text, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

func (p *Process) now() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// Alive says whether the process runs, paused or not.
func (p *Process) Alive() bool {
	l := p.now()
	return l != nil && !l.over()
}

// PID of the life that runs; 0: none.
func (p *Process) PID() int {
	if l := p.now(); l != nil && !l.over() {
		return l.cmd.Process.Pid
	}
	return 0
}

func (p *Process) signal(s os.Signal) error {
	l := p.now()
	if l == nil || l.over() {
		return nil
	}
	if err := l.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process without a word, and waits for its end.
func (p *Process) Kill() error {
	err := p.signal(syscall.SIGKILL)
	if l := p.now(); l != nil {
		<-l.exited
	}
	return err
}

// Pause stops the process where it is; Resume lets it go on.
func (p *Process) Pause() error  { return p.signal(syscall.SIGSTOP) }
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Stop asks the process to end, and kills it if it does not.
func (p *Process) Stop() error {
	l := p.now()
	if l == nil {
		return nil
	}
	err := errors.Join(p.signal(syscall.SIGCONT), p.signal(syscall.SIGTERM))
	select {
	case <-l.exited:
		return err
	case <-time.After(stopWithin):
		return errors.Join(err, fmt.Errorf("%s did not stop within %s", p.name, stopWithin), p.Kill())
	}
}

// Use has the process's next life run another program.
func (p *Process) Use(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = path
}

// Path is the program that its next life runs.
func (p *Process) Path() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

// Restart starts the process again, on the same addresses and data.
func (p *Process) Restart(ctx context.Context) error {
	return errors.Join(p.Kill(), p.Start(ctx))
}
