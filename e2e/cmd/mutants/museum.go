package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/planted"
)

// museumTable says which bug of another system is planted where, and which test
// has to find it; moverTable is that of the byte mover, whose bugs are e2e/planted's.
const (
	museumTable = "e2e/MUSEUM.md"
	moverTable  = "transferd/README.md"
)

// museumLimit is of one test; running out of it is finding.
const museumLimit = time.Minute

var (
	museumRow    = regexp.MustCompile("(?m)^\\| ([TV]-\\d\\d) \\|.*\\| `(Test\\w+)` in `([\\w/.]+)` \\| `([\\w/.]+\\.go)`: `([^`]+)`(?: by `(Test\\w+)` in `([\\w/.]+)`)? \\|$")
	moverRow     = regexp.MustCompile("(?m)^\\| (R-\\d\\d) \\|.*\\| `(Test\\w+)` in `([\\w/.]+)` \\|$")
	errMuseumRow = fmt.Errorf("%s has no row with a line to plant", museumTable)
)

// exhibit is one row.
type exhibit struct {
	row  string
	test string
	m    *mutant
}

// exhibits reads the table; each file's mutants are made once, so that the
// numbers are one's own.
func exhibits() ([]exhibit, []*mutant, error) {
	text, err := os.ReadFile(museumTable)
	if err != nil {
		return nil, nil, err
	}
	of := map[string][]*mutant{}
	next := 1
	var out []exhibit
	var all []*mutant
	for _, r := range museumRow.FindAllStringSubmatch(string(text), -1) {
		row, test, file, source, from := r[1], r[2], r[3], r[4], strings.ReplaceAll(r[5], `\|`, "|")
		if r[6] != "" {
			test, file = r[6], r[7]
		}
		if of[source] == nil {
			if of[source], err = findIn(source, nil, &next); err != nil {
				return nil, nil, err
			}
		}
		found := false
		for _, m := range of[source] {
			if m.from != from {
				continue
			}
			copied := *m
			copied.tests = []suite{{"./" + path.Dir(file), ""}}
			out = append(out, exhibit{row, test, &copied})
			all = append(all, m)
			found = true
			break
		}
		if !found {
			return nil, nil, fmt.Errorf("%s: %s has no mutant of %q", row, source, from)
		}
	}
	if len(out) == 0 {
		return nil, nil, errMuseumRow
	}
	return out, unique(all), nil
}

func unique(all []*mutant) (out []*mutant) {
	seen := map[int]bool{}
	for _, m := range all {
		if !seen[m.id] {
			seen[m.id] = true
			out = append(out, m)
		}
	}
	return out
}

// runMuseum plants each row's bug: its test fails with it and passes without.
func runMuseum(ctx context.Context, dir, only string) error {
	t := &museum{}
	if err := t.lines(ctx, dir, only); err != nil {
		return err
	}
	if err := t.mover(ctx, dir, only); err != nil {
		return err
	}
	if t.missed > 0 || t.rows == 0 {
		return fmt.Errorf("%d of %d rows do not hold", t.missed, t.rows)
	}
	fmt.Printf("%d rows hold\n", t.rows)
	return nil
}

// museum counts how it went.
type museum struct{ rows, missed int }

// shows runs a row's test without and with its bug.
func (t *museum) shows(ctx context.Context, row, test, bug string, without, with func() (word, out string, err error)) error {
	var before, out string
	for try := 0; try < 3 && before != survives; try++ { // a clock on a busy machine fails a test that is right
		var err error
		if before, out, err = without(); err != nil {
			return err
		}
	}
	after, _, err := with()
	if err != nil {
		return err
	}
	t.rows++
	if before != survives || after == survives {
		t.missed++
		fmt.Println(out)
	}
	fmt.Printf("%s planted: %-15s without: %-10s %s %s\n", row, after, map[bool]string{true: "passes", false: "FAILS"}[before == survives], test, bug)
	return nil
}

// mover plants the bugs of the byte mover, each in a build of its own.
func (t *museum) mover(ctx context.Context, dir, only string) error {
	text, err := os.ReadFile(moverTable)
	if err != nil {
		return err
	}
	tests := map[string][2]string{}
	for _, m := range moverRow.FindAllStringSubmatch(string(text), -1) {
		tests[m[1]] = [2]string{m[2], "./" + path.Dir(m[3])}
	}
	clean := map[string]*binary{} // by package
	for i, b := range planted.Bugs {
		if !strings.Contains(b.Row, only) {
			continue
		}
		test, s := tests[b.Row][0], suite{tests[b.Row][1], ""}
		if test == "" {
			return fmt.Errorf("%s has no row %s", moverTable, b.Row)
		}
		if clean[s.pkg] == nil {
			if clean[s.pkg], err = compileSuite(ctx, dir, "", s, 1000+len(clean)); err != nil {
				return err
			}
		}
		changed, err := replaced(dir, b)
		if err != nil {
			return err
		}
		bad, err := compileSuite(ctx, dir, changed, s, 2000+i)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Row, err)
		}
		run := func(b *binary) func() (string, string, error) {
			return func() (string, string, error) { return b.run(ctx, museumLimit, []string{test}, "SUREHAND_MUTANT=0") }
		}
		if err := t.shows(ctx, b.Row, test, b.About, run(clean[s.pkg]), run(bad)); err != nil {
			return err
		}
		if err := os.Remove(bad.path); err != nil {
			return err
		}
	}
	return nil
}

// replaced writes a bug's files, and the go command's word for them.
func replaced(dir string, b planted.Bug) (string, error) {
	files, err := b.Files(".")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		abs, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[abs] = filepath.Join(dir, b.Row+"-"+flat(file))
		if err := os.WriteFile(replace[abs], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, b.Row+".json")
	return name, os.WriteFile(name, text, 0o644)
}

// lines plants the table's lines, all of them in one build.
func (t *museum) lines(ctx context.Context, dir, only string) error {
	rows, changed, err := exhibits()
	if err != nil {
		return err
	}
	path, err := overlay(dir, changed)
	if err != nil {
		return err
	}
	built := map[string]*binary{} // by package
	for _, x := range rows {
		if !strings.Contains(x.row, only) {
			continue
		}
		s := x.m.tests[0]
		if built[s.pkg] == nil {
			if built[s.pkg], err = compileSuite(ctx, dir, path, s, len(built)); err != nil {
				return err
			}
		}
		b := *built[s.pkg]
		b.suite = s
		run := func(mutant int) func() (string, string, error) {
			return func() (string, string, error) {
				return b.run(ctx, museumLimit, []string{x.test}, fmt.Sprintf("SUREHAND_MUTANT=%d", mutant))
			}
		}
		if err := t.shows(ctx, x.row, x.test, x.m.String(), run(0), run(x.m.id)); err != nil {
			return err
		}
	}
	return nil
}
