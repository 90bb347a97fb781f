package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked runs a command line whose command only notes a flag's value.
func asked(t *testing.T, flag string, args ...string) (string, error) {
	t.Helper()
	root := newRoot(newEngine(nil))
	got := ""
	for _, c := range root.Commands() {
		c.RunE = func(c *cobra.Command, _ []string) error {
			got = c.Flag(flag).Value.String()
			return nil
		}
	}
	root.SetArgs(args)
	root.SetOut(new(bytes.Buffer))
	root.SetErr(new(bytes.Buffer))
	err := root.Execute()
	return got, err
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "surehand.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestASettingComesFromTheFirstSourceThatHasIt(t *testing.T) {
	path := file(t, "redis: redis://file\nserve:\n  redis: redis://section\n")
	steps := []struct {
		want string
		add  func() []string
	}{
		{"redis://127.0.0.1:6379", func() []string { return nil }},
		{"redis://section", func() []string { return []string{"--config", path} }},
		{"redis://env", func() []string { t.Setenv("SUREHAND_REDIS", "redis://env"); return nil }},
		{"redis://command", func() []string { t.Setenv("SUREHAND_SERVE_REDIS", "redis://command"); return nil }},
		{"redis://flag", func() []string { return []string{"--redis", "redis://flag"} }},
	}
	args := []string{"serve"}
	for _, s := range steps {
		args = append(args, s.add()...)
		if got, err := asked(t, "redis", args...); err != nil || got != s.want {
			t.Errorf("%v: %s, %v; want %s", args, got, err, s.want)
		}
	}
}

func TestASectionIsForItsOwnCommandOnly(t *testing.T) {
	path := file(t, "redis: redis://file\nserve:\n  redis: redis://section\nengine:\n  prefill-tok-s: 8000\n")
	if got, err := asked(t, "redis", "worker", "--config", path); err != nil || got != "redis://file" {
		t.Fatal(got, err)
	}
	t.Setenv("SUREHAND_CONFIG", path)
	args := []string{"engine", "--role", "prefill", "--id", "p", "--transferd-socket", "s", "--transferd-control", "c"}
	if got, err := asked(t, "prefill-tok-s", args...); err != nil || got != "8000" {
		t.Fatal(got, err)
	}
}

func TestARequiredFlagMayStandInTheFile(t *testing.T) {
	path := file(t, "engine:\n  role: decode\n  id: d1\n  transferd-socket: s\n  transferd-control: c\n")
	if got, err := asked(t, "role", "engine", "--config", path); err != nil || got != "decode" {
		t.Fatal(got, err)
	}
	if _, err := asked(t, "role", "engine"); err == nil || !strings.Contains(err.Error(), "role") {
		t.Fatal(err)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"a typing error":      "reddis: x\n",
		"one in a section":    "serve:\n  reddis: x\n",
		"an unknown section":  "server:\n  redis: x\n",
		"a value of no sense": "serve:\n  grace: soon\n",
		"no YAML":             "{",
	} {
		if _, err := asked(t, "redis", "serve", "--config", file(t, text)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := asked(t, "redis", "serve", "--config", filepath.Join(t.TempDir(), "missing.yaml")); err == nil {
		t.Error("a missing file was accepted")
	}
	t.Setenv("SUREHAND_GRACE", "soon")
	if _, err := asked(t, "redis", "serve"); err == nil || !strings.Contains(err.Error(), "grace") {
		t.Error(err)
	}
}

func TestEveryCommandHelps(t *testing.T) {
	for _, c := range newRoot(newEngine(nil)).Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.Short == "" || c.RunE == nil {
			t.Errorf("%s says nothing, or does nothing", c.Name())
		}
		if c.Example == "" && !c.Hidden && c.Name() != "version" {
			t.Errorf("%s has no example", c.Name())
		}
		var out, errs bytes.Buffer
		if status := Main([]string{c.Name(), "--help"}, nil, &out, &errs); status != 0 || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%s --help: %d %s", c.Name(), status, errs.String())
		}
	}
}

func TestAnErrorIsOneLineAndAStatus(t *testing.T) {
	var out, errs bytes.Buffer
	if status := Main([]string{"serve", "--no-such-flag"}, nil, &out, &errs); status != 1 || !strings.HasPrefix(errs.String(), "surehand: ") || strings.Contains(errs.String(), "Usage") {
		t.Fatal(status, errs.String())
	}
}
