package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The tests run the real command in a process of its own: this test binary
// again, told by its environment what to be. Only a process can be killed.
const (
	roleVariable = "SUREHAND_TEMPORAL_TEST_ROLE"
	roleServer   = "server" // be surehand-temporal
	roleParent   = "parent" // start one, then wait to be killed

	// patience bounds every wait for something that takes a second or two.
	patience = 45 * time.Second
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case roleServer:
		main()
	case roleParent:
		beParent()
	default:
		goleak.VerifyTestMain(m)
	}
}

// beParent starts a server that is to die with it, and waits to be killed.
func beParent() {
	cmd, _ := asCommand(context.Background(), os.Args[1:]...)
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// server is a running surehand-temporal.
type server struct {
	ready
	cmd    *exec.Cmd
	stderr *bytes.Buffer
}

// asCommand re-runs this binary as the command with these arguments.
func asCommand(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleServer)
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	return cmd, stderr
}

// on is the flag for a data directory, or for a store's URL.
func on(data string) []string {
	if strings.HasPrefix(data, "postgres://") {
		return []string{"--store", data}
	}
	return []string{"--data", data}
}

// startServer runs one on free ports and returns when it says it is ready.
func startServer(t *testing.T, data string, args ...string) *server {
	t.Helper()
	args = append(append(on(data), "--listen", "127.0.0.1:0", "--ui", "", "--die-with-parent"), args...)
	cmd, stderr := asCommand(context.Background(), args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{cmd: cmd, stderr: stderr}
	t.Cleanup(s.kill)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		s.kill()
		t.Fatalf("no ready line (%v); stderr:\n%s", err, stderr)
	}
	if err := json.Unmarshal(line, &s.ready); err != nil || !s.Ready {
		t.Fatalf("ready line %q: %v", line, err)
	}
	return s
}

// kill is kill -9; killing the dead is no error.
func (s *server) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // says "killed", as asked
	}
}

// stop asks for an orderly end and fails the test when it is not one.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("stop: %v; stderr:\n%s", err, s.stderr)
	}
}

// client is an SDK client that is closed with the test.
func (s *server) client(t *testing.T) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: s.Frontend, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// raw is the API beneath the SDK.
func (s *server) raw(t *testing.T) workflowservice.WorkflowServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Frontend, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return workflowservice.NewWorkflowServiceClient(conn)
}

// refused runs the command with arguments it must not accept and returns what
// it said on its way out.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, stderr := asCommand(ctx, args...)
	output, err := cmd.Output()
	if ctx.Err() != nil || err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("not refused: error %v, stdout %q, stderr:\n%s", err, output, stderr)
	}
	if len(output) != 0 {
		t.Fatalf("stdout of a refused start: %q", output)
	}
	return stderr.String()
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// await tries again until it works, for at most patience.
func await(t *testing.T, try func() error) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; <-ticker.C {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func dataDir(t *testing.T) string { return filepath.Join(t.TempDir(), "data") }

// quiet drops the SDK's log lines, which a killed server makes many of.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

var _ log.Logger = quiet{}
