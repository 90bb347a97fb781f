package dev

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyLineMax = 64 << 10
	healthEvery  = 200 * time.Millisecond
	tailLines    = 20
	tailBytes    = 16 << 10
	logKeep      = 16 << 20 // a larger log is put aside at the next start
)

// Spec is one process to run.
type Spec struct {
	Name  string
	Path  string
	Args  []string
	Env   []string // besides our own
	Needs []string // names of those that must be ready before
	Rank  int      // in the drain: lower ranks end first
	Grace time.Duration
	// Health is a URL that answers 200 once the process is ready, for a program
	// that does not say so itself; Within how long that may take (0: a minute).
	Health string
	Within time.Duration
	// Addresses by what they are, for people and tests.
	Addresses map[string]string
}

// run is one life of a child.
type run struct {
	spec  Spec
	cmd   *exec.Cmd
	log   *os.File
	since int64         // where this life begins in the log
	ready chan struct{} // closed at the ready line
	done  chan struct{} // closed when it is reaped and its output is read
	err   error         // how it ended; read after done
	once  sync.Once
}

// begin starts a process. It is ready when it has printed a line of JSON with
// "ready": true, or its Health answers; everything else it prints goes to its log.
func begin(s *spawner, spec Spec, logs string) (*run, error) {
	log, err := openLog(filepath.Join(logs, spec.Name+".log"))
	if err != nil {
		return nil, err
	}
	since, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	// A plain pipe, not StdoutPipe: Wait must not close it before it is read.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = in, log
	r := &run{spec: spec, cmd: cmd, log: log, since: since, ready: make(chan struct{}), done: make(chan struct{})}
	if err := s.start(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", spec.Name, err), out.Close(), in.Close(), log.Close())
	}
	read := make(chan error, 1)
	go func() { read <- r.read(out) }()
	if spec.Health != "" {
		go r.look()
	}
	go func() {
		defer close(r.done)
		closed := in.Close() // the child's copy is the last writer
		ended := cmd.Wait()
		r.err = errors.Join(ended, closed, <-read, out.Close(), log.Close())
	}()
	return r, nil
}

// look asks for the health until it is there, or the process is not.
func (r *run) look() {
	client := &http.Client{Timeout: healthEvery, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		if answer, err := client.Get(r.spec.Health); err == nil {
			_ = answer.Body.Close() // its status says it all
			if answer.StatusCode == http.StatusOK {
				r.once.Do(func() { close(r.ready) })
				return
			}
		}
		select {
		case <-time.After(healthEvery):
		case <-r.done:
			return
		}
	}
}

func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logKeep {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// read looks for the ready line, then copies.
func (r *run) read(out io.Reader) error {
	lines := bufio.NewReaderSize(out, readyLineMax)
	for {
		line, err := lines.ReadSlice('\n')
		if isReady(line) {
			r.once.Do(func() { close(r.ready) })
			_, err := io.Copy(r.log, lines)
			return err
		}
		if len(line) > 0 {
			if _, err := r.log.Write(line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

func isReady(line []byte) bool {
	var l struct {
		Ready bool `json:"ready"`
	}
	return len(line) > 1 && line[0] == '{' && json.Unmarshal(line, &l) == nil && l.Ready
}

func (r *run) pid() int { return r.cmd.Process.Pid }

// send signals the process group; one that ended is no error.
func (r *run) send(s syscall.Signal) error {
	select {
	case <-r.done:
		return nil
	default:
	}
	if err := signalGroup(r.pid(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", r.spec.Name, err)
	}
	return nil
}

// stop asks, waits for the grace, and then does not ask.
func (r *run) stop(ctx context.Context) error {
	if err := r.send(syscall.SIGTERM); err != nil {
		return err
	}
	grace := time.NewTimer(r.spec.Grace)
	defer grace.Stop()
	why := fmt.Sprintf("did not stop within %s", r.spec.Grace)
	select {
	case <-r.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
		why = "was not waited for"
	}
	if err := r.send(syscall.SIGKILL); err != nil {
		return err
	}
	<-r.done
	return fmt.Errorf("%s %s and was killed", r.spec.Name, why)
}

// tail is the end of what this life logged, for a failure's report.
func (r *run) tail(logs string) string {
	f, err := os.Open(filepath.Join(logs, r.spec.Name+".log"))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(info.Size()-min(r.since, info.Size()), tailBytes))
	if _, err := f.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return strings.Join(lines, "\n")
}
