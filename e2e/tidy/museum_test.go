package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// defects are the rows about the byte mover of the museum of other systems' real
// defects. Numbers that are missing were never given.
var defects = []int{1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19, 21, 22, 23, 24, 25, 27, 29, 30, 32, 34, 36, 37, 38, 40, 41, 42}

var (
	defectRow = regexp.MustCompile("(?m)^\\| (R-\\d\\d) \\|.*\\| `(Test\\w+)` in `([\\w/.]+)` \\|$")
	report    = regexp.MustCompile(`[\w.-]+/[\w.-]+#\d+`)
)

// Every row stands in transferd's README with a test, and the test's comment names
// the row and the report that it comes from.
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
	for _, n := range defects {
		if row := fmt.Sprintf("R-%02d", n); !mapped[row] {
			t.Errorf("%s has no test in the table of transferd/README.md", row)
		}
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
