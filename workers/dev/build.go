package dev

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	modulePath    = "github.com/surehand/surehand"
	progressEvery = 5 * time.Second
	turnEvery     = 200 * time.Millisecond
	buildTimeout  = 30 * time.Minute
	buildsKept    = 3 // of one binary: another checkout may need its own
)

// binary is a program that dev runs besides itself.
type binary struct {
	name    string
	dir     string   // of its module, below the root of the sources
	target  string   // what go build is told, in dir
	sources []string // files and folders, below the root, that it is made of
	env     []string
	flags   []string
	about   string // for the progress
}

var (
	transferd = binary{
		name: "transferd", dir: ".", target: "./transferd/cmd/transferd",
		sources: []string{"transferd", "contracts", "go.mod", "go.sum"},
		env:     []string{"CGO_ENABLED=0"},
		about:   "seconds",
	}
	temporal = binary{
		name: "surehand-temporal", dir: "deploy/temporal", target: ".",
		sources: []string{"deploy/temporal"},
		// The server asks for a newer Go than Surehand does.
		env:   []string{"CGO_ENABLED=0", "GOTOOLCHAIN=auto"},
		flags: []string{"-trimpath", "-ldflags=-s -w"},
		about: "several minutes, once",
	}
)

// places are where binaries are looked for.
type places struct {
	beside string // folder of the running program
	source string // root of the sources; empty: not there
	cache  string
	out    io.Writer // progress
}

// find gives the path of b: one that is installed beside us, one built from
// just these sources before, a fresh build, or one on PATH.
func (p places) find(ctx context.Context, b binary) (string, error) {
	if path := filepath.Join(p.beside, b.name); executable(path) {
		return path, nil
	}
	if p.source != "" {
		return p.build(ctx, b)
	}
	if path, err := exec.LookPath(b.name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither beside this program nor on PATH, and the sources are not here: "+
		"run in a checkout of Surehand, or put the binary beside this program", b.name)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// build names the result after its sources, so that it is built anew exactly
// when they changed.
func (p places) build(ctx context.Context, b binary) (string, error) {
	sum, err := sourcesSum(p.source, b.sources)
	if err != nil {
		return "", fmt.Errorf("read the sources of %s: %w", b.name, err)
	}
	path := filepath.Join(p.cache, b.name+"-"+sum)
	if executable(path) {
		return path, nil
	}
	if err := os.MkdirAll(p.cache, 0o755); err != nil {
		return "", err
	}
	turn, err := p.turn(ctx, b)
	if err != nil {
		return "", err
	}
	defer turn.Close()
	if executable(path) {
		return path, nil // built by another run meanwhile
	}
	unfinished := path + ".building"
	if err := p.compile(ctx, b, unfinished); err != nil {
		return "", errors.Join(err, removeIfThere(unfinished))
	}
	if err := os.Rename(unfinished, path); err != nil {
		return "", err
	}
	return path, p.forget(b)
}

// turn waits until no other run builds b: side by side they would take twice as
// long, each for the same result. It lasts until the file is closed.
func (p places) turn(ctx context.Context, b binary) (*os.File, error) {
	path := filepath.Join(p.cache, b.name+".lock")
	began, told := time.Now(), time.Now()
	for {
		f, err := tryLock(path)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return f, err
		}
		if now := time.Now(); now.Sub(told) >= progressEvery {
			told = now
			fmt.Fprintf(p.out, "another run builds %s … %.0f s\n", b.name, now.Sub(began).Seconds())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(turnEvery):
		}
	}
}

func (p places) compile(ctx context.Context, b binary, to string) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	args := append([]string{"build", "-o", to}, append(slices.Clone(b.flags), b.target)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(p.source, b.dir)
	cmd.Env = append(os.Environ(), append(slices.Clone(b.env), "GOWORK=off")...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	fmt.Fprintf(p.out, "building %s (%s)\n", b.name, b.about)
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintf(p.out, "building %s … %.0f s\n", b.name, time.Since(began).Seconds())
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", b.name, err, indent("go", strings.TrimSpace(output.String())))
			}
			fmt.Fprintf(p.out, "built %s in %.0f s\n", b.name, time.Since(began).Seconds())
			return nil
		}
	}
}

// forget removes the oldest builds of b.
func (p places) forget(b binary) error {
	paths, err := filepath.Glob(filepath.Join(p.cache, b.name+"-*"))
	if err != nil {
		return err
	}
	type made struct {
		path string
		at   time.Time
	}
	var builds []made
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && !strings.HasSuffix(path, ".building") {
			builds = append(builds, made{path, info.ModTime()})
		}
	}
	slices.SortFunc(builds, func(x, y made) int { return y.at.Compare(x.at) })
	var failed []error
	for _, old := range builds[min(buildsKept, len(builds)):] {
		failed = append(failed, removeIfThere(old.path))
	}
	return errors.Join(failed...)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ErrNotBuilt says that no binary of just these sources lies in the cache.
var ErrNotBuilt = errors.New("not built from these sources yet")

// TemporalServer gives the embedded server built from just the sources below
// root, in cache: the one that dev runs. With patience it is built when missing,
// else that is ErrNotBuilt.
func TemporalServer(ctx context.Context, root, cache string, out io.Writer, patience bool) (string, error) {
	p := places{source: root, cache: cache, out: out}
	if patience {
		return p.build(ctx, temporal)
	}
	sum, err := sourcesSum(root, temporal.sources)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, temporal.name+"-"+sum)
	if !executable(path) {
		return "", ErrNotBuilt
	}
	return path, nil
}

// sourcesSum is over the names and contents of all files but tests.
func sourcesSum(root string, sources []string) (string, error) {
	sum := sha256.New()
	for _, s := range sources {
		err := filepath.WalkDir(filepath.Join(root, s), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root {
					return filepath.SkipDir
				}
				return nil
			}
			if !isSource(d) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s %d\n", name, len(text))
			sum.Write(text)
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func isSource(d fs.DirEntry) bool {
	name := d.Name()
	return d.Type().IsRegular() && !strings.HasSuffix(name, "_test.go") &&
		(strings.HasSuffix(name, ".go") || name == "go.mod" || name == "go.sum")
}

// sourceRoot looks upward from dir for Surehand's own module.
func sourceRoot(dir string) string {
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+modulePath+"\n") {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

func indent(name, text string) string {
	return "  " + name + " | " + strings.ReplaceAll(text, "\n", "\n  "+name+" | ")
}
