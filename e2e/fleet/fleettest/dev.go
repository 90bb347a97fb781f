package fleettest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/dev"
)

// DevAnswers runs `surehand dev` with an engine of real weights, as a visitor does, and
// asks it what they know.
func DevAnswers(t *testing.T, p fleet.Programs, within time.Duration, args ...string) {
	t.Helper()
	ready := Dev(t, p, args...)
	c, err := traffic.NewClientOf(ready.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	a := c.Send(ctx, traffic.Ask{Model: ready.Model, Prompt: "What is the capital of France?", MaxTokens: 16, Chat: true})
	if err := a.Whole(); err != nil || a.Usage.Direct != a.Usage.Prompt || !strings.Contains(a.Text, "Paris") {
		t.Errorf("%v, %q, %+v", err, a.Text, a.Usage)
	}
	t.Logf("%s, ready after %.0f s: %q, %+v", ready.Model, ready.Seconds, a.Text, a.Usage)
}

// Dev runs `surehand dev` on free ports until the test ends, with no path behind
// the addresses of its ready line. The test fails when it does not end well.
func Dev(t *testing.T, p fleet.Programs, args ...string) (ready dev.Ready) {
	t.Helper()
	root, err := filepath.Abs("../..") // where it finds its sources
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(p.Surehand, append([]string{"dev", "--json", "--data", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0",
		"--grpc", "127.0.0.1:0", "--ui", "127.0.0.1:0", "--temporal-listen", "127.0.0.1:0"}, args...)...)
	logs := &strings.Builder{}
	c.Dir, c.Stderr = root, logs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	t.Cleanup(func() {
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, lines) // to its end
		if err := c.Wait(); err != nil {
			t.Errorf("dev: %s\n%s", err, logs)
		}
	})
	line, err := lines.ReadBytes('\n')
	if err != nil {
		t.Fatalf("dev is not ready: %s\n%s", err, logs)
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatalf("%s: %s", line, err)
	}
	ready.HTTP, ready.UI = strings.TrimSuffix(ready.HTTP, "/v1"), strings.TrimSuffix(ready.UI, "/")
	return ready
}
