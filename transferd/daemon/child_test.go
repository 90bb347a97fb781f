package daemon_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// The test binary is a daemon of its own as well, so that what a daemon holds is
// measured apart from what the test holds, and so that it can be killed.
const (
	roleVariable = "SUREHAND_TEST_DAEMON" // its node
	dataVariable = "SUREHAND_TEST_DATA"
	cudaVariable = "SUREHAND_TEST_CUDA" // its driver library
)

// childRetention is short, so that a soak reaches its steady state soon.
const childRetention = 100 * time.Millisecond

// child is a daemon in a process of its own.
type child struct {
	node, data string
	cmd        *exec.Cmd
	stdin      io.Closer // its end is the parent's death
	control    *client.Control

	Socket, Control, Peer, Metrics string
}

// beDaemon is the other process: it serves until its standard input ends.
func beDaemon() int {
	if err := serveChild(os.Getenv(roleVariable), os.Getenv(dataVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveChild(node, data string) error {
	c := child{Socket: filepath.Join(data, "e.sock"), Control: "unix://" + filepath.Join(data, "c.sock")}
	d, err := daemon.Start(daemon.Config{Node: handoff.NodeID(node), Data: data, EngineSocket: c.Socket, Control: c.Control, Peer: "127.0.0.1:0",
		Metrics: "127.0.0.1:0", Lease: handoff.LeaseDefault, Retention: childRetention, CUDA: os.Getenv(cudaVariable)})
	if err != nil {
		return err
	}
	c.Peer, c.Metrics = d.PeerAddress(), d.MetricsAddress()
	if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
		return errors.Join(err, d.Close())
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, d.Close())
}

// startChild starts a daemon; env is added to its environment.
func startChild(t *testing.T, node string, env ...string) *child {
	t.Helper()
	return startLife(t, node, t.TempDir(), env...)
}

func startLife(t *testing.T, node, data string, env ...string) *child {
	t.Helper()
	c := &child{node: node, data: data}
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(os.Environ(), roleVariable+"="+node, dataVariable+"="+c.data)
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	check(t, err)
	out, err := c.cmd.StdoutPipe()
	check(t, err)
	check(t, c.cmd.Start())
	c.stdin = in
	t.Cleanup(func() { c.kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	check(t, err)
	check(t, json.Unmarshal([]byte(line), c))
	c.control, err = client.Dial(c.Control)
	check(t, err)
	t.Cleanup(func() { check(t, c.control.Close()) })
	return c
}

// end has it close and waits; a repeat does nothing.
func (c *child) end(t *testing.T) {
	t.Helper()
	if c.cmd.ProcessState == nil {
		check(t, c.stdin.Close())
		check(t, c.cmd.Wait())
	}
}

// kill ends it the hard way; a repeat does nothing.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Signal(syscall.SIGKILL) // gone already is as good
		_ = c.cmd.Wait()
	}
}

// signal sends one, and for SIGSTOP waits until the kernel says that it stopped.
func (c *child) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	check(t, c.cmd.Process.Signal(sig))
	if sig != syscall.SIGSTOP {
		return
	}
	eventually(t, "it stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		check(t, err)
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "T")
	})
}

// processor is the CPU time that it used.
func (c *child) processor(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	check(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // from the state, the third of all, on
	user, err := strconv.ParseInt(fields[11], 10, 64)
	check(t, err)
	system, err := strconv.ParseInt(fields[12], 10, 64)
	check(t, err)
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}

// footprint is what a daemon must not lose, as its own metrics tell.
type footprint struct{ Resident, Files, Goroutines, Registered, Tombstones, Pinned, Quarantined uint64 }

var footprintMetrics = []string{"process_resident_memory_bytes", "process_open_fds", "go_goroutines", "surehand_transferd_registered_bytes",
	"surehand_transferd_tombstones", "surehand_transferd_pinned_blocks", "surehand_transferd_quarantined_bytes"}

func (c *child) footprint(t *testing.T) footprint {
	t.Helper()
	fresh := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience} // a kept connection would be counted
	reply, err := fresh.Get("http://" + c.Metrics + "/metrics")
	check(t, err)
	defer func() { check(t, reply.Body.Close()) }()
	text, err := io.ReadAll(reply.Body)
	check(t, err)
	found := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				found[name] = uint64(v)
			}
		}
	}
	var v [7]uint64
	for i, name := range footprintMetrics {
		n, ok := found[name]
		if !ok {
			t.Fatalf("no metric %s", name)
		}
		v[i] = n
	}
	return footprint{v[0], v[1], v[2], v[3], v[4], v[5], v[6]}
}
