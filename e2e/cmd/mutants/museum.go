package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"time"
)

// museumTable says which bug of another system is planted where, and which test
// has to find it.
const museumTable = "e2e/MUSEUM.md"

// museumLimit is of one test; running out of it is finding.
const museumLimit = time.Minute

var (
	museumRow    = regexp.MustCompile("(?m)^\\| ([TV]-\\d\\d) \\|.*\\| `(Test\\w+)` in `([\\w/.]+)` \\| `([\\w/.]+\\.go)`: `([^`]+)`(?: by `(Test\\w+)` in `([\\w/.]+)`)? \\|$")
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
func runMuseum(ctx context.Context, dir string) error {
	rows, changed, err := exhibits()
	if err != nil {
		return err
	}
	path, err := overlay(dir, changed)
	if err != nil {
		return err
	}
	built := map[string]*binary{} // by package
	missed := 0
	for _, x := range rows {
		s := x.m.tests[0]
		if built[s.pkg] == nil {
			if built[s.pkg], err = compileSuite(ctx, dir, path, s, len(built)); err != nil {
				return err
			}
		}
		b := *built[s.pkg]
		b.suite = s
		without, out, err := b.run(ctx, museumLimit, []string{x.test}, "SUREHAND_MUTANT=0")
		if err != nil {
			return err
		}
		with, _, err := b.run(ctx, museumLimit, []string{x.test}, fmt.Sprintf("SUREHAND_MUTANT=%d", x.m.id))
		if err != nil {
			return err
		}
		if without != survives || with == survives {
			missed++
			fmt.Println(out)
		}
		fmt.Printf("%s planted: %-15s without: %-10s %s %s\n", x.row, with, map[bool]string{true: "passes", false: "FAILS"}[without == survives], x.test, x.m)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d rows do not hold", missed, len(rows))
	}
	fmt.Printf("%d rows hold\n", len(rows))
	return nil
}
