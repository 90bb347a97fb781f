package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Previous is the release that this one is upgraded from: old and new processes
// have to work with each other, and new workers on old histories.
const Previous = "a4327236cb5e561c708efab3d20fbd39d9e1fdb7"

// ErrNoRelease says that an older release cannot be built here: this is no clone,
// or a shallow one.
var ErrNoRelease = errors.New("the sources of an older release are not in this clone")

// Release makes the programs of an older revision, once, in the cache. Temporal
// and Redis are those of now.
func Release(ctx context.Context, now Programs, revision string) (Programs, error) {
	root, err := sources()
	if err != nil {
		return now, err
	}
	if out, err := exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-t", revision).CombinedOutput(); err != nil {
		return now, fmt.Errorf("%w: %s: %s", ErrNoRelease, revision, strings.TrimSpace(string(out)))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return now, err
	}
	old := now
	into := filepath.Join(cache, "surehand", "bin")
	old.Surehand, old.Transferd = filepath.Join(into, "surehand-"+revision[:12]), filepath.Join(into, "transferd-"+revision[:12])
	if made(old.Surehand) && made(old.Transferd) {
		return old, nil
	}
	dir, err := os.MkdirTemp("", "surehand-release-")
	if err != nil {
		return now, err
	}
	defer os.RemoveAll(dir)
	return old, errors.Join(unpack(ctx, root, dir, revision), build(ctx, dir, old.Surehand, "."), build(ctx, dir, old.Transferd, "./transferd/cmd/transferd"))
}

// OtherWire makes a transferd that is today's, but speaks the next version of the
// peers' protocol: what a release that changes it will be to this one.
func OtherWire(ctx context.Context) (path string, err error) {
	root, err := sources()
	if err != nil {
		return "", err
	}
	of := filepath.Join(root, "contracts", "wire", "wire.go")
	text, err := os.ReadFile(of)
	if err != nil {
		return "", err
	}
	const line = "\tVersion = "
	if strings.Count(string(text), line) != 1 {
		return "", fmt.Errorf("%s has no one line %q", of, line)
	}
	dir, err := os.MkdirTemp("", "surehand-wire-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	changed, overlay := filepath.Join(dir, "wire.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {of: changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(changed, []byte(strings.Replace(string(text), line, line+"1 + ", 1)), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	path = filepath.Join(root, ".surehand", "e2e", "transferd-other-wire")
	return path, compile(ctx, root, path, "./transferd/cmd/transferd", "-overlay", overlay)
}

func made(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unpack writes a revision's files; the clone itself is only read.
func unpack(ctx context.Context, root, dir, revision string) error {
	tar := filepath.Join(dir, "release.tar")
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, "git", "-C", root, "archive", "--output", tar, revision),
		exec.CommandContext(ctx, "tar", "-x", "-C", dir, "-f", tar),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("sources of %s: %w\n%s", revision, err, out)
		}
	}
	return nil
}

// build is compile into a place that others look at meanwhile.
func build(ctx context.Context, dir, path, target string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := compile(ctx, dir, fresh, target); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
