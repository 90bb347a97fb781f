package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sleeps lists tests that may sleep outside a polling loop, each with its reason.
var sleeps = map[string]string{
	"e2e/observe/cost_test.go": "a measurement: spans are sent on a timer, and each side waits for it alike",
}

// goFiles calls f for every Go file of the repository that suffix selects.
func goFiles(t *testing.T, suffix string, f func(path string, src []byte)) {
	t.Helper()
	dir := root(t)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (strings.HasPrefix(name, ".") && path != dir || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		f(filepath.ToSlash(rel), src)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A test that sleeps and then looks is right only on a fast machine. A test may
// poll: sleep inside a loop that ends by a condition; or live in virtual time.
func TestTestsDoNotSleep(t *testing.T) {
	goFiles(t, "_test.go", func(path string, src []byte) {
		if sleeps[path] != "" || strings.Contains(string(src), `"testing/synctest"`) {
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, pos := range bareSleeps(f) {
			t.Errorf("%s: sleeps outside a polling loop", set.Position(pos))
		}
	})
}

// bareSleeps finds calls of time.Sleep that no loop encloses.
func bareSleeps(f *ast.File) (out []token.Pos) {
	var walk func(n ast.Node, inLoop bool)
	walk = func(n ast.Node, inLoop bool) {
		ast.Inspect(n, func(m ast.Node) bool {
			switch x := m.(type) {
			case *ast.ForStmt:
				if m != n {
					walk(x, true)
					return false
				}
			case *ast.RangeStmt:
				if m != n {
					walk(x.Body, inLoop) // so many times is no condition
					return false
				}
			case *ast.CallExpr:
				if s, ok := x.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" && !inLoop {
					if id, ok := s.X.(*ast.Ident); ok && id.Name == "time" {
						out = append(out, x.Pos())
					}
				}
			}
			return true
		})
	}
	walk(f, false)
	return out
}

func TestASleepOutsideALoopIsFound(t *testing.T) {
	src := `package x
import "time"
func TestA() { time.Sleep(1) }
func TestB() { for { time.Sleep(1) } }
func TestC() { for range 3 { time.Sleep(1) } }
`
	f, err := parser.ParseFile(token.NewFileSet(), "x_test.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := bareSleeps(f); len(got) != 2 {
		t.Errorf("found %d sleeps, want 2", len(got))
	}
}
