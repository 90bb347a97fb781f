package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chooser is added to each changed package: which mutant acts is told by the
// environment, and which ones a test came by is noted.
const chooser = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	mutantChosen, _ = strconv.Atoi(os.Getenv("SUREHAND_MUTANT"))
	mutantPassed    = os.Getenv("SUREHAND_MUTANTS_PASSED")
	mutantNoted     sync.Map
)

func mutantOn(n int) bool {
	if mutantPassed != "" {
		if _, known := mutantNoted.LoadOrStore(n, true); !known {
			if f, err := os.OpenFile(mutantPassed, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
				f.WriteString(strconv.Itoa(n) + "\n")
				f.Close()
			}
		}
	}
	return n == mutantChosen
}

func mutantOr(n int, x bool, y func() bool) bool {
	if mutantOn(n) {
		return x || y()
	}
	return x && y()
}

func mutantAnd(n int, x bool, y func() bool) bool {
	if mutantOn(n) {
		return x && y()
	}
	return x || y()
}

var _, _ = mutantOr, mutantAnd
`

// binary is a compiled test binary of one suite.
type binary struct {
	suite
	path  string
	dir   string // where its tests run
	tests []*test
}

// test is one of a suite: what it takes alone, and the mutants that it comes by.
type test struct {
	name   string
	took   time.Duration
	passed map[int]bool
}

// overlay writes the changed files and what the go command needs to know of them.
func overlay(dir string, ms []*mutant) (string, error) {
	replace := map[string]string{}
	byFile := map[string][]*mutant{}
	for _, m := range ms {
		byFile[m.file] = append(byFile[m.file], m)
	}
	for file, of := range byFile {
		src, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		pkg := regexp.MustCompile(`(?m)^package (\w+)`).FindSubmatch(src)
		abs, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		for name, text := range map[string][]byte{abs: apply(src, of), filepath.Join(filepath.Dir(abs), "mutant_chooser.go"): fmt.Appendf(nil, chooser, pkg[1])} {
			to := filepath.Join(dir, flat(file)+"-"+filepath.Base(name))
			if err := os.WriteFile(to, text, 0o644); err != nil {
				return "", err
			}
			replace[name] = to
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o644)
}

var compileError = regexp.MustCompile(`(?m)^(?:vet: )?(?:\./)?([\w./-]+\.go):(\d+):\d+: `)

// compilable drops the mutants on lines that do not compile, until all the rest
// does.
func compilable(ctx context.Context, dir string, ms []*mutant) (good, bad []*mutant, err error) {
	for {
		path, err := overlay(dir, ms)
		if err != nil {
			return nil, nil, err
		}
		c := exec.CommandContext(ctx, "go", append([]string{"build", "-overlay", path, "-gcflags=-e"}, packages(ms)...)...)
		out, err := c.CombinedOutput()
		if err == nil {
			return ms, bad, nil
		}
		wrong := map[string][]int{}
		for _, m := range compileError.FindAllStringSubmatch(string(out), -1) {
			line, _ := strconv.Atoi(m[2]) // digits only
			wrong[filepath.Base(m[1])] = append(wrong[filepath.Base(m[1])], line)
		}
		var rest []*mutant
		for _, m := range ms {
			lines := wrong[flat(m.file)+"-"+filepath.Base(m.file)]
			if slices.ContainsFunc(lines, func(l int) bool { return m.line <= l && l <= m.last }) {
				bad = append(bad, m)
			} else {
				rest = append(rest, m)
			}
		}
		if len(rest) == len(ms) {
			return nil, nil, fmt.Errorf("go build: %w\n%s", err, out)
		}
		ms = rest
	}
}

func flat(file string) string { return strings.ReplaceAll(filepath.ToSlash(file), "/", "-") }

func packages(ms []*mutant) []string {
	seen := map[string]bool{}
	var out []string
	for _, m := range ms {
		if p := "./" + filepath.Dir(m.file); !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// build compiles the suites of the mutants, each once.
func build(ctx context.Context, dir string, ms []*mutant) (map[suite]*binary, error) {
	path, err := overlay(dir, ms)
	if err != nil {
		return nil, err
	}
	out := map[suite]*binary{}
	for _, m := range ms {
		for _, s := range m.tests {
			if out[s] != nil {
				continue
			}
			b, err := compileSuite(ctx, dir, path, s, len(out))
			if err != nil {
				return nil, err
			}
			out[s] = b
		}
	}
	return out, nil
}

func compileSuite(ctx context.Context, dir, overlay string, s suite, n int) (*binary, error) {
	at, err := filepath.Abs(s.pkg)
	if err != nil {
		return nil, err
	}
	b := &binary{suite: s, path: filepath.Join(dir, fmt.Sprintf("suite%d.test", n)), dir: at}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", b.path} // nobody debugs it
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	c := exec.CommandContext(ctx, "go", append(args, s.pkg)...)
	if text, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", s.pkg, err, text)
	}
	return b, nil
}
