package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/surehand/surehand/workers/dev"
)

// ErrNoTemporal says that the embedded Temporal server was not built here yet,
// and building it was not asked for: it takes minutes.
var ErrNoTemporal = errors.New("the embedded Temporal server is not built: run `go run . dev` once")

// Programs are the paths of what a fleet runs.
type Programs struct {
	Surehand, Transferd, Temporal string
	Redis                         string // empty: `surehand store` in its place
	Engine                        string // of engines of another kind; empty: Surehand
}

// Build makes the programs from this checkout; what has not changed is not made
// anew. With patience the Temporal server is built too, which takes minutes the
// first time; without, it must be there, else ErrNoTemporal.
func Build(ctx context.Context, patience bool) (Programs, error) {
	root, err := sources()
	if err != nil {
		return Programs{}, err
	}
	into := filepath.Join(root, ".surehand", "e2e")
	p := Programs{Surehand: filepath.Join(into, "surehand"), Transferd: filepath.Join(into, "transferd")}
	if p.Temporal, err = TemporalServer(ctx, root, patience); err != nil {
		return p, err
	}
	for path, target := range map[string]string{p.Surehand: ".", p.Transferd: "./transferd/cmd/transferd"} {
		if err := compile(ctx, root, path, target); err != nil {
			return p, err
		}
	}
	if path, err := exec.LookPath("redis-server"); err == nil {
		p.Redis = path
	}
	return p, nil
}

// Program makes one more program of this checkout, named so, beside a fleet's.
func Program(ctx context.Context, name, target string) (string, error) {
	root, err := sources()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".surehand", "e2e", name)
	return path, compile(ctx, root, path, target)
}

// sources is the root of the checkout that this package was compiled from, or
// else, where a build has trimmed its paths, the one around the working directory.
func sources() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		return holdsSources(filepath.Dir(filepath.Dir(filepath.Dir(file))))
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if root, err := holdsSources(dir); err == nil || dir == filepath.Dir(dir) {
			return root, err
		}
	}
}

func holdsSources(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("the sources are not there any more: %w", err)
	}
	if line, _, _ := strings.Cut(string(text), "\n"); line != "module github.com/surehand/surehand" {
		return "", fmt.Errorf("%s holds another module: %q", root, line)
	}
	return root, nil
}

func compile(ctx context.Context, dir, path, target string, flags ...string) error {
	c := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", path}, flags...), target)...)
	c.Dir, c.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", target, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// TemporalServer is the embedded server of just the sources at root, where `surehand
// dev` builds it; with patience it is built now, else ErrNoTemporal.
func TemporalServer(ctx context.Context, root string, patience bool) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path, err := dev.TemporalServer(ctx, root, filepath.Join(cache, "surehand", "bin"), os.Stderr, patience)
	if errors.Is(err, dev.ErrNotBuilt) {
		return "", ErrNoTemporal
	}
	return path, err
}
