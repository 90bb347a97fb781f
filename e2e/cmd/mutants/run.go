package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	survives = "SURVIVED"
	noticed  = "noticed"
	late     = "ran out of time"
	unpassed = "NOT REACHED"
	unsteady = "UNSTEADY" // a test fails with it, and without it too
)

// Tests may take so many times what they take undisturbed, and grace besides.
const (
	times = 4
	grace = 20 * time.Second
)

// unwatched keeps Temporal's SDK from failing a workflow that did not yield for a
// second: a busy machine's do not, and a mutant that never does runs out of time.
const unwatched = "TEMPORAL_DEBUG=1"

// slow tests of a suite run apart from its others, and after them.
const slow = 2 * time.Second

// measure runs every test alone with no mutant chosen: it has to pass, and tells
// how long it takes and which mutants it comes by.
func (b *binary) measure(ctx context.Context, dir string) error {
	names, err := b.list(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		t, err := b.alone(ctx, dir, name)
		if err != nil {
			return err
		}
		if len(t.passed) > 0 {
			b.tests = append(b.tests, t)
		}
	}
	return nil
}

var (
	runFlag  = regexp.MustCompile(`-test\.run=(\S+)`)
	testName = regexp.MustCompile(`^(?:Test|Fuzz)\w+$`)
)

// list names the suite's tests.
func (b *binary) list(ctx context.Context) (names []string, err error) {
	pattern := "."
	if m := runFlag.FindStringSubmatch(b.args); m != nil {
		pattern = m[1]
	}
	c := exec.CommandContext(ctx, b.path, "-test.list="+pattern)
	c.Dir = b.dir
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w", b.pkg, err)
	}
	for l := range strings.Lines(string(out)) {
		if l = strings.TrimSpace(l); testName.MatchString(l) {
			names = append(names, l)
		}
	}
	return names, nil
}

func (b *binary) alone(ctx context.Context, dir, name string) (*test, error) {
	notes := filepath.Join(dir, "passed")
	defer os.Remove(notes)
	t := &test{name: name, passed: map[int]bool{}}
	began := time.Now()
	for try := range 3 { // a clock on a busy machine fails a test that is right
		os.Remove(notes)
		began = time.Now()
		word, out, err := b.run(ctx, time.Hour, []string{name}, "SUREHAND_MUTANTS_PASSED="+notes)
		if err != nil {
			return nil, err
		}
		if word == survives {
			break
		}
		if try == 2 {
			return nil, fmt.Errorf("%s in %s fails without a mutant:\n%s", name, b.pkg, out)
		}
	}
	t.took = time.Since(began)
	text, err := os.ReadFile(notes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for l := range strings.Lines(string(text)) {
		var n int
		if _, err := fmt.Sscan(l, &n); err != nil {
			return nil, err
		}
		t.passed[n] = true
	}
	return t, nil
}

// run executes tests of the suite once, up to the first failure.
func (b *binary) run(ctx context.Context, limit time.Duration, tests []string, env string) (word, out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append([]string{"-test.failfast", "-test.timeout=0"}, strings.Fields(runFlag.ReplaceAllString(b.args, ""))...)
	if len(tests) > 0 {
		args = append(args, "-test.run=^("+strings.Join(tests, "|")+")$")
	}
	c := exec.CommandContext(ctx, b.path, args...)
	c.Dir, c.Env, c.WaitDelay = b.dir, append(os.Environ(), unwatched, env), time.Second
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return late, "", nil
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case errors.As(err, &exit):
		return noticed, string(text), nil
	case err != nil:
		return "", "", err
	}
	return survives, "", nil
}

// part is tests of one suite that run in one process.
type part struct {
	b     *binary
	tests []string
	took  time.Duration
}

// parts are the tests that come by a mutant, the quickest first.
func parts(m *mutant, suites map[suite]*binary) (out []*part) {
	for _, s := range m.tests {
		quick := &part{b: suites[s]}
		for _, t := range suites[s].tests {
			switch {
			case !t.passed[m.id]:
			case t.took > slow:
				out = append(out, &part{suites[s], []string{t.name}, t.took})
			default:
				quick.tests = append(quick.tests, t.name)
				quick.took += t.took
			}
		}
		if len(quick.tests) > 0 {
			out = append(out, quick)
		}
	}
	slices.SortStableFunc(out, func(a, b *part) int { return cmp.Compare(a.took, b.took) })
	return out
}

// judge runs the tests that come by a mutant until one of them fails.
func judge(ctx context.Context, m *mutant, suites map[suite]*binary) (word, by string, err error) {
	word = unpassed
	for _, p := range parts(m, suites) {
		w, name, err := p.judge(ctx, m)
		if err != nil {
			return "", "", err
		}
		if w == noticed || w == late {
			return w, strings.TrimPrefix(p.b.pkg, "./") + " " + name, nil
		}
		if word != unsteady {
			word = w
		}
	}
	return word, "", nil
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// judge says how one part took a mutant. A failure counts only if the same test
// passes without it, under the same limit: machines are busy and clocks are not.
func (p *part) judge(ctx context.Context, m *mutant) (word, by string, err error) {
	limit := times*p.took + grace
	for range 3 {
		word, out, err := p.b.run(ctx, limit, p.tests, fmt.Sprintf("SUREHAND_MUTANT=%d", m.id))
		if err != nil || word == survives {
			return word, "", err
		}
		suspects := p.tests
		if f := failure.FindStringSubmatch(out); f != nil {
			suspects = f[1:2]
		}
		without, _, err := p.b.run(ctx, limit, suspects, "SUREHAND_MUTANT=0")
		if err != nil {
			return "", "", err
		}
		if without == survives {
			return word, strings.Join(suspects[:1], ""), nil
		}
		limit *= 2
	}
	return unsteady, "", nil
}
