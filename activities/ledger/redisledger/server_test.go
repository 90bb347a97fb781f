package redisledger

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a real redis-server that a test started, on a loopback port of its
// own, in a folder of its own.
type server struct {
	t    testing.TB
	dir  string
	port int
	args []string
	log  *bytes.Buffer
	cmd  *exec.Cmd
}

// startServer skips where there is no redis-server, except where CI promises
// one: a suite that silently tests nothing is worse than a red one.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed, and CI must have it")
		}
		t.Skip("redis-server is not installed: the suite ran on miniredis only")
	}
	s := &server{t: t, dir: t.TempDir(), port: freePort(t), args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *server) start() {
	s.t.Helper()
	s.log = &bytes.Buffer{}
	s.cmd = exec.Command("redis-server", append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--unixsocket", filepath.Join(s.dir, "s"), "--save", "", "--daemonize", "no",
	}, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.await(func(c *redis.Client) error { return c.Ping(s.t.Context()).Err() })
}

// await tries do on a client of its own until it succeeds.
func (s *server) await(do func(*redis.Client) error) {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1})
	defer c.Close()
	end := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do(c)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			s.kill()
			s.t.Fatalf("redis-server: %v\n%s", err, s.log)
		}
	}
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// kill is kill -9. A second one does nothing.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	// Both errors only say that it is dead, which is what is wanted.
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// patience lets a test pass on a machine that is busy with something else.
const patience = 20 * time.Second

// open is a ledger on the server by its TCP address.
func (s *server) open() *Ledger { return s.openWithin(patience) }

func (s *server) openWithin(timeout time.Duration) *Ledger {
	s.t.Helper()
	l, err := Open(Options{URL: "redis://" + s.addr() + "/0", Timeout: timeout})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return l
}
