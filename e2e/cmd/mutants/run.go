package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	survives = "SURVIVED"
	noticed  = "noticed"
	late     = "ran out of time"
	unpassed = "NOT REACHED"
)

// A suite may take so many times what it takes undisturbed, and grace besides.
const (
	times = 4
	grace = 20 * time.Second
)

// measure runs every suite with no mutant chosen: it has to pass, and tells how
// long it takes and which mutants it comes by.
func (b *binary) measure(ctx context.Context, dir string) (time.Duration, error) {
	notes := filepath.Join(dir, "passed")
	defer os.Remove(notes)
	began := time.Now()
	if word, out, err := b.run(ctx, 10*time.Minute, "SUREHAND_MUTANTS_PASSED="+notes); err != nil || word != survives {
		return 0, errors.Join(fmt.Errorf("%s fails without a mutant", b.pkg), err, errors.New(out))
	}
	text, err := os.ReadFile(notes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		var n int
		if _, err := fmt.Sscan(l, &n); err != nil {
			return 0, err
		}
		b.passed[n] = true
	}
	return time.Since(began), nil
}

// run executes the suite once, up to its first failure.
func (b *binary) run(ctx context.Context, limit time.Duration, env string) (word, out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append([]string{"-test.failfast"}, strings.Fields(b.args)...)
	c := exec.CommandContext(ctx, b.path, args...)
	c.Dir, c.Env, c.WaitDelay = b.dir, append(os.Environ(), env), time.Second
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

// judge runs the suites that come by a mutant, the quickest first, until one
// of them fails.
func judge(ctx context.Context, m *mutant, suites map[suite]*binary, took map[suite]time.Duration) (string, suite, error) {
	word := unpassed
	order := slices.Clone(m.tests)
	slices.SortStableFunc(order, func(a, b suite) int { return cmp.Compare(took[a], took[b]) })
	for _, s := range order {
		b := suites[s]
		if !b.passed[m.id] {
			continue
		}
		w, _, err := b.run(ctx, times*took[s]+grace, fmt.Sprintf("SUREHAND_MUTANT=%d", m.id))
		if err != nil {
			return "", s, err
		}
		if w != survives {
			return w, s, nil
		}
		word = survives
	}
	return word, suite{}, nil
}
