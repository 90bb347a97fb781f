package vllmenv

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed requirements.txt
var requirements string

//go:embed model.py
var model string

//go:embed weights.py
var weights string

//go:embed prefork.py
var prefork string

const uv = "uv==0.13.8"

// ErrUnavailable says that vLLM cannot be had here, and why.
var ErrUnavailable = errors.New("vLLM cannot be installed here")

// Env is an installed vLLM.
type Env struct {
	Dir    string
	Python string // of its own environment
	Stubs  string // folder of the stand-ins
	Model  string // folder of the tiny model and its tokenizer
	Host   string // prefork.py
	Path   string // PYTHONPATH: our connector, and what it needs besides
}

// DefaultDir is where vLLM lies below a user's cache folder.
func DefaultDir(cache string) string { return filepath.Join(cache, "surehand", "vllm") }

func at(dir string) Env {
	return Env{Dir: dir, Python: filepath.Join(dir, "venv", "bin", "python"), Stubs: filepath.Join(dir, "stubs"),
		Model: filepath.Join(dir, "model"), Host: filepath.Join(dir, "prefork.py")}
}

// Install gives the vLLM in dir and makes first what of it is missing, with
// progress on out. Idempotent: what is there is left, what an earlier run did not
// finish is begun again. Several processes may ask at once; one works.
func Install(ctx context.Context, dir string, out io.Writer) (Env, error) {
	e := at(dir)
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return e, fmt.Errorf("%w: its wheels are for linux/amd64, this is %s/%s", ErrUnavailable, runtime.GOOS, runtime.GOARCH)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return e, err
	}
	unlock, err := lock(ctx, dir+".lock", out)
	if err != nil {
		return e, err
	}
	defer unlock()
	for _, s := range e.steps() {
		if err := s.see(ctx, e, out); err != nil {
			return e, err
		}
	}
	// Not steps: they are small, and must be those of this very program.
	if e.Path, err = e.connector(); err != nil {
		return e, err
	}
	return e, os.WriteFile(e.Host, []byte(prefork), 0o644)
}

// find is the machine's own Python, of a version that the wheels are made for.
func find(ctx context.Context) (string, error) {
	const ask = `import sys, venv, ensurepip; assert (3, 10) <= sys.version_info[:2] <= (3, 13), sys.version; print(sys.executable)`
	for _, name := range []string{"python3", "python3.12", "python3.11", "python3.10", "python3.13"} {
		if out, err := exec.CommandContext(ctx, name, "-c", ask).Output(); err == nil {
			return strings.TrimSpace(string(out)), nil
		}
	}
	return "", fmt.Errorf("%w: no Python 3.10 to 3.13 with its venv module on PATH (on Debian: apt-get install python3-venv)", ErrUnavailable)
}

// tell runs a command with its output as progress.
func (e Env) tell(ctx context.Context, out io.Writer, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = e.Dir, append(os.Environ(), "LD_LIBRARY_PATH="+e.Stubs, "HF_HUB_OFFLINE=1")
	end := &tail{out: out}
	c.Stdout, c.Stderr = end, end
	if err := c.Run(); err != nil {
		return fmt.Errorf("%w: %s: %w\n%s", ErrUnavailable, filepath.Base(name), err, end.last())
	}
	return nil
}

// tail passes lines on, indented, and keeps the last of them for an error.
type tail struct {
	out  io.Writer
	rest string
	kept []string
}

const tailKept = 12

func (t *tail) Write(b []byte) (int, error) {
	t.rest += string(b)
	for {
		line, rest, whole := strings.Cut(t.rest, "\n")
		if !whole {
			return len(b), nil
		}
		t.rest = rest
		t.kept = append(t.kept, line)
		t.kept = t.kept[max(0, len(t.kept)-tailKept):]
		if _, err := fmt.Fprintf(t.out, "  %s\n", line); err != nil {
			return 0, err
		}
	}
}

func (t *tail) last() string { return strings.Join(append(t.kept, t.rest), "\n") }
