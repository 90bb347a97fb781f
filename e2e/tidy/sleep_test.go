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
	inRealTime(t, sleeps, bareSleeps, "sleeps outside a polling loop")
}

// inRealTime fails for whatever is found in a test that does not live in virtual time,
// but in those that are listed with their reason.
func inRealTime(t *testing.T, listed map[string]string, find func(*ast.File) []token.Pos, what string) {
	t.Helper()
	goFiles(t, "_test.go", func(path string, src []byte) {
		if listed[path] != "" || strings.Contains(string(src), `"testing/synctest"`) {
			return
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, pos := range find(f) {
			t.Errorf("%s: %s", set.Position(pos), what)
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

// clocked lists tests that may compare time that has passed, each with its reason.
var clocked = map[string]string{
	"transferd/daemon/fault_test.go":   "a share of CPU time in what has passed, however much that is",
	"transferd/daemon/harness_test.go": "lets time pass",
}

// A test that fails when it took too long fails on a busy machine, and one that may not
// be too quick on a fast one. What is waited for is told apart by how it ended.
func TestTestsAreNotJudgedByTheClock(t *testing.T) {
	inRealTime(t, clocked, comparedTimes, "compares how long something took")
}

// comparedTimes finds comparisons of time.Since, or of what is named after it.
func comparedTimes(f *ast.File) (out []token.Pos) {
	named := map[string]bool{}
	since := func(n ast.Node) (found bool) {
		ast.Inspect(n, func(m ast.Node) bool {
			if s, ok := m.(*ast.SelectorExpr); ok && s.Sel.Name == "Since" {
				id, ok := s.X.(*ast.Ident)
				found = found || ok && id.Name == "time"
			}
			return true
		})
		return found
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, e := range a.Rhs {
				if id, ok := a.Lhs[i].(*ast.Ident); ok && since(e) {
					named[id.Name] = true
				}
			}
		}
		return true
	})
	ast.Inspect(f, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if !ok || b.Op != token.LSS && b.Op != token.GTR && b.Op != token.LEQ && b.Op != token.GEQ {
			return true
		}
		for _, side := range []ast.Expr{b.X, b.Y} {
			id, ok := side.(*ast.Ident)
			if ok && named[id.Name] || since(side) {
				out = append(out, b.Pos())
			}
		}
		return true
	})
	return out
}

func TestAThresholdOfTimeIsFound(t *testing.T) {
	src := `package x
import "time"
func TestA() { if took := time.Since(began); took > time.Second { fail() } }
func TestB() { if time.Since(began) > time.Second { fail() } }
func TestC() { log(time.Since(began)) }
func TestD() { for end := time.Now().Add(patience); ; { if time.Now().After(end) { fail() } } }
`
	f, err := parser.ParseFile(token.NewFileSet(), "x_test.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := comparedTimes(f); len(got) != 2 {
		t.Errorf("found %d comparisons, want 2", len(got))
	}
}
