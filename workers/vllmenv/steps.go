package vllmenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// step makes one folder of the environment. It is done when its mark holds what
// it was made of.
type step struct {
	name, about string
	of          string // its inputs: another value makes it anew
	run         func(ctx context.Context, out io.Writer) error
}

func (e Env) steps() []step {
	packages := uv + requirements
	return []step{
		{"boot", "a package client of its own", uv, e.boot},
		{"venv", "packages: torch, vLLM, NIXL and what they need, some 0.9 GB", packages, e.packages},
		{"stubs", "stand-ins for the libraries of a GPU", packages, e.stubs},
		{"extra", "what our connector needs besides", packages + strings.Join(extra, " "), e.extra},
		{"model", "a tiny random model and its tokenizer", packages + model, e.model},
	}
}

func (s step) mark(e Env) string { return filepath.Join(e.Dir, "."+s.name+".made") }

func (s step) sum() string {
	sum := sha256.Sum256([]byte(s.of))
	return hex.EncodeToString(sum[:])
}

func (s step) done(e Env) bool {
	made, err := os.ReadFile(s.mark(e))
	return err == nil && string(made) == s.sum()
}

// see makes what is not done, with its time on out.
func (s step) see(ctx context.Context, e Env, out io.Writer) error {
	if s.done(e) {
		return nil
	}
	began := time.Now()
	fmt.Fprintf(out, "vllm: %s\n", s.about)
	if err := s.make(ctx, e, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "vllm: %s: done in %.0f s\n", s.name, time.Since(began).Seconds())
	return nil
}

// make begins with an empty folder: half a step is not built upon.
func (s step) make(ctx context.Context, e Env, out io.Writer) error {
	dir := filepath.Join(e.Dir, s.name)
	if err := errors.Join(os.RemoveAll(s.mark(e)), os.RemoveAll(dir)); err != nil {
		return err
	}
	if err := s.run(ctx, out); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return os.WriteFile(s.mark(e), []byte(s.sum()), 0o644)
}

func (e Env) boot(ctx context.Context, out io.Writer) error {
	python, err := find(ctx)
	if err != nil {
		return err
	}
	boot := filepath.Join(e.Dir, "boot")
	if err := e.tell(ctx, out, python, "-m", "venv", boot); err != nil {
		return err
	}
	return e.tell(ctx, out, filepath.Join(boot, "bin", "pip"), "install", "--quiet", uv)
}

func (e Env) packages(ctx context.Context, out io.Writer) error {
	client := filepath.Join(e.Dir, "boot", "bin", "uv")
	list := filepath.Join(e.Dir, "requirements.txt")
	if err := os.WriteFile(list, []byte(requirements), 0o644); err != nil {
		return err
	}
	python := filepath.Join(e.Dir, "boot", "bin", "python")
	if err := e.tell(ctx, out, client, "venv", "--quiet", "--no-python-downloads", "--python", python, filepath.Join(e.Dir, "venv")); err != nil {
		return err
	}
	return e.tell(ctx, out, client, "pip", "install", "--python", e.Python, "--no-deps", "--only-binary", ":all:", "-r", list)
}

func (e Env) stubs(ctx context.Context, out io.Writer) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return fmt.Errorf("%w: gcc is not on PATH; it makes the stand-ins for the libraries of a GPU", ErrUnavailable)
	}
	torch, err := filepath.Glob(filepath.Join(e.Dir, "venv", "lib", "python3.*", "site-packages", "torch", "lib"))
	if err != nil || len(torch) != 1 {
		return fmt.Errorf("torch is not in the environment: %d folders, %w", len(torch), err)
	}
	libraries, err := standIns(torch[0])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(e.Stubs, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(libraries)) {
		if err := libraries[name].build(ctx, e.Stubs, name); err != nil {
			return err
		}
	}
	return e.tell(ctx, out, e.Python, "-c", "import torch; assert not torch.cuda.is_available(); print('torch', torch.__version__)")
}

func (e Env) model(ctx context.Context, out io.Writer) error {
	script := filepath.Join(e.Dir, "model.py")
	if err := os.WriteFile(script, []byte(model), 0o644); err != nil {
		return err
	}
	return e.tell(ctx, out, e.Python, script, e.Model)
}
