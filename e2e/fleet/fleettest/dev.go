package fleettest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/workers/dev"
)

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
