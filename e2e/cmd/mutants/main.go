// Command mutants changes one line of the code that everything rests on, in a
// copy of the sources, and runs the tests beside it: a change that no test
// notices is a line that nobody proves.
//
//	go run ./e2e/cmd/mutants [-only fence] [-n 60] [-timeout 2m]
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// need is the share of mutants that must be noticed.
const need = 0.95

func main() {
	only := flag.String("only", "", "mutants whose file contains this")
	most := flag.Int("n", 0, "run at most so many, spread evenly; 0: all")
	limit := flag.Duration("timeout", 3*time.Minute, "of one mutant's tests; running out of it is noticing")
	list := flag.Bool("list", false, "say what would be changed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *most, *limit, *list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, most int, limit time.Duration, list bool) error {
	all, err := find(only)
	if err != nil {
		return err
	}
	if most > 0 && most < len(all) {
		var some []mutant
		for i := range most {
			some = append(some, all[i*len(all)/most])
		}
		all = some
	}
	if list {
		for _, m := range all {
			fmt.Println(m)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copySources(dir); err != nil {
		return err
	}
	var survived []mutant
	explained := 0
	for i, m := range all {
		began := time.Now()
		word, err := try(ctx, dir, m, limit)
		if err != nil {
			return err
		}
		fmt.Printf("%3d/%d %-12s %5.1fs  %s\n", i+1, len(all), word, time.Since(began).Seconds(), m)
		if word == survives {
			if why := excuses[m.key()]; why != "" {
				explained++
				fmt.Printf("        explained: %s\n", why)
				continue
			}
			survived = append(survived, m)
		}
	}
	judged := len(all) - explained
	share := float64(judged-len(survived)) / float64(max(judged, 1))
	fmt.Printf("%d mutants, %d noticed (%.0f %%), %d explained, %d survived\n", len(all), judged-len(survived), 100*share, explained, len(survived))
	for _, m := range survived {
		fmt.Println("survived:", m)
	}
	if share < need {
		return fmt.Errorf("%.0f %% of the mutants were noticed, want %.0f %%", 100*share, 100*need)
	}
	return nil
}

const (
	survives = "SURVIVED"
	noticed  = "noticed"
	unusable = "not compiled"
)

// try changes the copy, runs the tests and changes it back.
func try(ctx context.Context, dir string, m mutant, limit time.Duration) (word string, err error) {
	path := filepath.Join(dir, m.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, m.apply(src), 0o644); err != nil {
		return "", err
	}
	defer func() {
		if e := os.WriteFile(path, src, 0o644); err == nil {
			err = e
		}
	}()
	for _, tests := range m.tests {
		ok, out, err := goTest(ctx, dir, tests, limit)
		switch {
		case err != nil:
			return "", err
		case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
			return unusable, nil
		case !ok:
			return noticed, nil
		}
	}
	return survives, nil
}

func goTest(ctx context.Context, dir, tests string, limit time.Duration) (ok bool, out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-failfast"}, strings.Fields(tests)...)...)
	c.Dir = dir
	b, err := c.CombinedOutput()
	if _, exited := err.(*exec.ExitError); exited || ctx.Err() == context.DeadlineExceeded {
		return false, string(b), nil
	}
	return err == nil, string(b), err
}

// copySources copies what the tests need: the module without what is built.
func copySources(dir string) error {
	return filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || path == "deploy" || path == "docs") {
			return filepath.SkipDir
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(dir, path), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), b, 0o644)
	})
}
