package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/planted"
)

// The tables of the museum say which test has to find the bug of a row.
const (
	museumTable = "e2e/MUSEUM.md"
	moverTable  = "transferd/README.md"
)

// museumLimit is of one test; running out of it is finding.
const museumLimit = time.Minute

var (
	museumRow = regexp.MustCompile("(?m)^\\| ([TV]-\\d\\d) \\|.*\\| `(Test\\w+)` in `([\\w/.]+)` \\| `e2e/planted`(?: by `(Test\\w+)` in `([\\w/.]+)`)? \\|$")
	moverRow  = regexp.MustCompile("(?m)^\\| (R-\\d\\d) \\|.*\\| `(Test\\w+)` in `([\\w/.]+)` \\|$")
)

// runMuseum plants each row's bug: its test fails with it and passes without.
func runMuseum(ctx context.Context, dir, only string) error {
	t := &museum{}
	if err := t.texts(ctx, dir, only); err != nil {
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

// finders are the tests of the rows whose bugs are e2e/planted's.
func finders() (map[string]suiteTest, error) {
	out := map[string]suiteTest{}
	for table, row := range map[string]*regexp.Regexp{museumTable: museumRow, moverTable: moverRow} {
		text, err := os.ReadFile(table)
		if err != nil {
			return nil, err
		}
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			test, file := m[2], m[3]
			if len(m) > 4 && m[4] != "" {
				test, file = m[4], m[5]
			}
			out[m[1]] = suiteTest{suite{"./" + path.Dir(file), ""}, test}
		}
	}
	return out, nil
}

type suiteTest struct {
	suite suite
	name  string
}

// texts plants the changes of text, each in a build of its own.
func (t *museum) texts(ctx context.Context, dir, only string) error {
	tests, err := finders()
	if err != nil {
		return err
	}
	clean := map[string]*binary{} // by package
	for i, b := range slices.Concat(planted.Orchestrator, planted.Mover) {
		if !strings.Contains(b.Row, only) {
			continue
		}
		test, s := tests[b.Row].name, tests[b.Row].suite
		if test == "" {
			return fmt.Errorf("no table of a museum has the row %s with its test", b.Row)
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
