package fleet

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell is a process that runs a script.
func shell(t *testing.T, s *spawner, script string, says bool) *Process {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	p := &Process{spec: spec{name: "shell", path: path, args: []string{"-c", script}, says: says}, dir: t.TempDir(), spawn: s}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func spawn(t *testing.T) *spawner {
	s := newSpawner()
	t.Cleanup(s.close)
	return s
}

func TestAProcessIsReadyOnceItSaysSo(t *testing.T) {
	p := shell(t, spawn(t), `echo a log line; echo '{"ready":true,"http":"x"}'; echo '{"ready":false}'; exec sleep 60`, true)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !p.Alive() || p.PID() == 0 {
		t.Fatal("it does not run")
	}
	if err := p.Start(t.Context()); err == nil {
		t.Fatal("it was started twice")
	}
	first := p.PID()
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.PID() == first {
		t.Fatal("the restart is the same process")
	}
	if !strings.Contains(p.Tail(), "a log line") {
		t.Fatalf("the log is %q", p.Tail())
	}
}

func TestAProcessThatEndsAtItsStartIsTold(t *testing.T) {
	p := shell(t, spawn(t), "echo broken >&2; exit 3", true)
	err := p.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "broken") {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Fatal("it runs")
	}
}

func TestAPausedProcessIsKilledAllTheSame(t *testing.T) {
	p := shell(t, spawn(t), `echo '{"ready":true}'; exec sleep 60`, true)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Pause(), p.Kill()); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Fatal("it runs")
	}
}

func TestProcessesEndWithTheThreadThatStartedThem(t *testing.T) {
	s := newSpawner()
	p := shell(t, s, `echo '{"ready":true}'; exec sleep 60`, true)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.close()
	select {
	case <-p.now().exited:
	case <-time.After(10 * time.Second):
		t.Fatal("it outlived its starter")
	}
}

func TestNothingHeldIsNotWaitedFor(t *testing.T) {
	if err := nothing(t.Context(), time.Hour, func(context.Context) []string { return nil }); err != nil {
		t.Fatal(err)
	}
	err := nothing(t.Context(), 0, func(context.Context) []string { return []string{"d1: 1 target"} })
	if err == nil || !strings.Contains(err.Error(), "d1: 1 target") {
		t.Fatal(err)
	}
}

func TestOnlyWritesOfHistoriesOfTheNamespaceCount(t *testing.T) {
	for line, want := range map[string]int{
		`persistence_requests{namespace="default",operation="UpdateWorkflowExecution",service_name="history"} 4`:         4,
		`persistence_requests{namespace="default",operation="CreateWorkflowExecution",service_name="history"} 1`:         1,
		`persistence_requests{namespace="default",operation="GetWorkflowExecution",service_name="history"} 9`:            0,
		`persistence_requests{namespace="temporal_system",operation="UpdateWorkflowExecution",service_name="history"} 9`: 0,
		`# HELP persistence_requests`: 0,
	} {
		if n, _, err := historyWrite(line); n != want || err != nil {
			t.Errorf("%s: %d, %v", line, n, err)
		}
	}
}

func TestTheSourcesAreFound(t *testing.T) {
	root, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "transferd")); err != nil {
		t.Fatal(err)
	}
}
