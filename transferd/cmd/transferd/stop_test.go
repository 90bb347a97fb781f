package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// A SIGTERM to D's daemon in the middle of a pull: nothing new is opened, what runs
// is pulled to its end and committed, then the daemon ends well; the commit is
// adopted by the next life.
func TestAStopLetsWhatRunsEndAndOpensNothingNew(t *testing.T) {
	ph := start(t, "tp", t.TempDir(), "127.0.0.1:0")
	dh := start(t, "td", t.TempDir(), "127.0.0.1:0", "--metrics", "unix://"+filepath.Join(t.TempDir(), "health.sock"))
	p, d := attach(t, ph, "p1"), attach(t, dh, "d1")
	if code, _ := health(t, dh.Metrics, "/readyz"); code != http.StatusOK {
		t.Fatal(code)
	}
	m := prepare(t, ph, p, d, "h-1")
	check(t, dh.cmd.Process.Signal(syscall.SIGTERM))
	for { // until it says so
		if code, _ := health(t, dh.Metrics, "/readyz"); code == http.StatusServiceUnavailable {
			break
		}
	}
	if code, _ := health(t, dh.Metrics, "/healthz"); code != http.StatusOK {
		t.Fatal("a daemon that drains is not dead")
	}
	next := m.plan
	next.Attempt.Handoff = "h-2"
	_, err := d.OpenTarget(background(t), client.TargetSpec{Plan: next, Shape: shape, Offsets: make([]uint64, pieces), FlagSlot: 1})
	wantCode(t, err, handoff.CodeUnavailable)
	_, err = dh.control.Pull(background(t), m.spec, nil)
	check(t, err)
	ans, err := m.commit(t, dh)
	check(t, err)
	check(t, dh.cmd.Wait())
	d.await(t, client.Detached)
	again := start(t, "td", dh.data, dh.Peer)
	e := d.await(t, client.Reattached)
	if len(e.Adopted) != 1 || again.Life != dh.Life+1 || ans.State != handoff.TargetCommitted {
		t.Fatalf("%+v, %+v", e, ans)
	}
}

// health asks over a socket, as a probe on the host does.
func health(t *testing.T, address, path string) (int, string) {
	t.Helper()
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
	}}}
	r, err := c.Get("http://transferd" + path)
	check(t, err)
	b, err := io.ReadAll(r.Body)
	check(t, err)
	check(t, r.Body.Close())
	return r.StatusCode, string(b)
}

// A setting stands in the file, is overruled by the environment, and that by a flag.
func TestAFlagWinsOverTheEnvironmentAndThatOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "transferd.yaml")
	check(t, os.WriteFile(file, []byte("node: from-file\nlease: 1s\nprogress-deadline: 1s\n"), 0o600))
	t.Setenv("SUREHAND_TRANSFERD_NODE", "from-environment")
	t.Setenv("SUREHAND_TRANSFERD_LEASE", "2s")
	start(t, "from-flag", t.TempDir(), "127.0.0.1:0", "--config", file)
	for want, args := range map[string][]string{
		"--lease 1h0m0s out of":    {"--node", "x", "--lease", "1h"},
		"engine socket":            {"--engine-socket", filepath.Join(t.TempDir(), "no", "such", "folder", "e.sock")},
		"config:":                  {"--config", file + ".gone"},
		"--progress-deadline must": {"--progress-deadline", "-1s"},
		"not loopback":             {"--metrics", "0.0.0.0:0"},
	} {
		out, err := refused(t, args)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	t.Setenv("SUREHAND_TRANSFERD_LEASE", "2h") // the file's 1s is not seen any more
	if out, err := refused(t, []string{"--config", file}); err == nil || !strings.Contains(out, "--lease 2h0m0s") {
		t.Errorf("%v: %s", err, out)
	}
}

func refused(t *testing.T, args []string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--data", t.TempDir(), "--peer", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), roleVariable+"=daemon")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The example that the systemd unit reads names flags that there are.
func TestTheExampleOfTheFileNamesFlags(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/systemd/transferd.yaml")
	check(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		key, _, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		n++
		if command().Flags().Lookup(key) == nil {
			t.Errorf("%s is no flag", key)
		}
	}
	if n < 5 {
		t.Fatal(n)
	}
}
