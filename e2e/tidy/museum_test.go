package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/surehand/surehand/e2e/planted"
)

// defects are the rows about the byte mover of the museum of other systems' real
// defects. Numbers that are missing were never given.
var defects = []int{1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19, 21, 22, 23, 24, 25, 27, 29, 30, 32, 34, 36, 37, 38, 40, 41, 42}

var (
	defectRow = regexp.MustCompile("(?m)^\\| (R-\\d\\d) \\|.*\\| `(Test\\w+)` in `([\\w/.]+)` \\|$")
	report    = regexp.MustCompile(`[\w.-]+/[\w.-]+#\d+`)
)

// Every row stands in transferd's README with a test, the test's comment names the row
// and the report that it comes from, and the row's bug can be planted.
func TestEveryDefectOfTheMuseumHasItsTest(t *testing.T) {
	mapped := map[string]bool{}
	for _, m := range defectRow.FindAllStringSubmatch(read(t, "transferd/README.md"), -1) {
		row, name, file := m[1], m[2], m[3]
		mapped[row] = true
		comment, ok := testComment(t, file, name)
		switch {
		case !ok:
			t.Errorf("%s: %s has no %s", row, file, name)
		case !strings.Contains(comment, row):
			t.Errorf("%s: the comment of %s does not name it", row, name)
		case !report.MatchString(comment):
			t.Errorf("%s: the comment of %s names no report, as owner/repo#n", row, name)
		}
	}
	bugs := map[string]bool{}
	for _, b := range planted.Mover {
		bugs[b.Row] = true
		if _, err := b.Files(root(t)); err != nil {
			t.Error(err)
		}
	}
	for _, n := range defects {
		row := fmt.Sprintf("R-%02d", n)
		if !mapped[row] {
			t.Errorf("%s has no test in the table of transferd/README.md", row)
		}
		if !bugs[row] {
			t.Errorf("%s has no bug in e2e/planted", row)
		}
	}
}

// others are the rows about the orchestrator (T), and those seen by running the
// stock parts (V). T-48 is about planners of capacity, which we are none of.
var others = map[string][]int{
	"T": {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30, 31, 33, 35, 36, 38, 40, 42, 44, 46, 47, 49, 50, 51, 52, 53, 54},
	"V": {1, 2, 3, 4, 5, 6, 7, 8},
}

var (
	exhibitRow = regexp.MustCompile("(?m)^\\| ([TV]-\\d\\d) \\| (.+?) \\| `(Test\\w+)` in `([\\w/.]+)` \\| (.+) \\|$")
	plantedBy  = regexp.MustCompile("^`e2e/planted`(?: by `(Test\\w+)` in `([\\w/.]+)`)?$")
)

// Every row stands in the museum's table with a test that exists and a bug that
// can be planted: a change of text in e2e/planted, a rule of the explorer or of the
// simulation, or a word why none can be. mutants -museum plants them.
func TestEveryFailureOfOtherSystemsHasItsTest(t *testing.T) {
	rules := read(t, "contracts/handoff/explore/mutants.go") + read(t, "e2e/sim/plant.go")
	texts := map[string]bool{}
	for _, b := range planted.Orchestrator {
		texts[b.Row] = true
		if _, err := b.Files(root(t)); err != nil {
			t.Error(err)
		}
	}
	mapped, plain := map[string]bool{}, 0
	for _, m := range exhibitRow.FindAllStringSubmatch(read(t, "e2e/MUSEUM.md"), -1) {
		row, name, file, bug := m[1], m[3], m[4], strings.ReplaceAll(m[5], `\|`, "|")
		mapped[row] = true
		if _, ok := testComment(t, file, name); !ok {
			t.Errorf("%s: %s has no %s", row, file, name)
		}
		kind, what, _ := strings.Cut(bug, ": ")
		by := plantedBy.FindStringSubmatch(bug)
		switch {
		case by != nil:
			if !texts[row] {
				t.Errorf("%s: e2e/planted has no bug of it", row)
			}
			if by[1] == "" {
				continue
			}
			if _, ok := testComment(t, by[2], by[1]); !ok {
				t.Errorf("%s: %s has no %s", row, by[2], by[1])
			}
		case kind == "explore", kind == "sim":
			if !strings.Contains(rules, strconv.Quote(what)) {
				t.Errorf("%s: %s has no rule %q", row, kind, what)
			}
		case kind == "plain" && what != "":
			plain++
		default:
			t.Errorf("%s: the bug is planted nowhere, and it is not said why: %s", row, bug)
		}
	}
	for letter, numbers := range others {
		for _, n := range numbers {
			if row := fmt.Sprintf("%s-%02d", letter, n); !mapped[row] {
				t.Errorf("%s has no test in e2e/MUSEUM.md", row)
			}
		}
	}
	if plain > 1 {
		t.Errorf("%d of %d rows are not planted", plain, len(mapped))
	}
}

func testComment(t *testing.T, file, name string) (string, bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), file), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == name {
			return fn.Doc.Text(), true
		}
	}
	return "", false
}
