package tidy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pure are the packages whose code is a function of its inputs.
var pure = []string{"contracts/handoff", "contracts/handoff/explore", "contracts/layout", "workflows"}

// orders lists the ranges over a map that cannot change a result, as
// package.function, each with its reason. Every other one is refused.
var orders = map[string]string{
	"contracts/handoff.*Targets.All":      "sorted before it is given out",
	"contracts/handoff.*Sources.All":      "sorted before it is given out",
	"contracts/handoff.*Capacity.Expire":  "sorted before it is acted upon",
	"contracts/handoff.*Capacity.Rebuild": "each entry is set under its own key",
	"contracts/handoff.*Capacity.Used":    "a sum",
	"contracts/handoff.*Capacity.Entries": "a copy under the same keys",
	"contracts/handoff.*Targets.Clone":    "a copy under the same keys",
	"contracts/handoff.*Sources.Clone":    "a copy under the same keys",
	"contracts/handoff.*Pins.Clone":       "a copy under the same keys",
	"contracts/handoff.*Trace.supersede":  "each entry is set under its own key",
	"contracts/handoff.*Trace.Final":      "the smallest attempt is chosen",
}

// clocks are the functions that read a clock, wait, or draw.
var clocks = map[string]bool{"time.Now": true, "time.Since": true, "time.Until": true, "time.After": true, "time.AfterFunc": true, "time.Sleep": true,
	"time.Tick": true, "time.NewTimer": true, "time.NewTicker": true}

func TestPureCodeStaysPure(t *testing.T) {
	exports := exportData(t)
	used := map[string]bool{}
	for _, dir := range pure {
		files := parsed(t, dir)
		if len(files.list) == 0 {
			continue
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
		conf := types.Config{Importer: importer.ForCompiler(files.set, "gc", func(path string) (io.ReadCloser, error) {
			f, ok := exports[path]
			if !ok {
				return nil, fmt.Errorf("no export data of %s", path)
			}
			return os.Open(f)
		})}
		if _, err := conf.Check(dir, files.set, files.list, info); err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, f := range files.list {
			for _, d := range f.Decls {
				impure(files.set, info, dir, d, used, func(pos token.Pos, what string) {
					t.Errorf("%s: %s", files.set.Position(pos), what)
				})
			}
		}
	}
	for k := range orders {
		if !used[k] {
			t.Errorf("%s ranges over no map any more: take it off the list", k)
		}
	}
}

// impure reports what a declaration must not do.
func impure(set *token.FileSet, info *types.Info, dir string, d ast.Decl, used map[string]bool, report func(token.Pos, string)) {
	name := dir + "." + declared(d)
	ast.Inspect(d, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.GoStmt:
			report(x.Pos(), "a goroutine in pure code")
		case *ast.SelectStmt:
			report(x.Pos(), "a select in pure code")
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok {
				if p, ok := info.Uses[id].(*types.PkgName); ok && clocks[p.Imported().Path()+"."+x.Sel.Name] {
					report(x.Pos(), p.Imported().Path()+"."+x.Sel.Name+" in pure code")
				}
			}
		case *ast.RangeStmt:
			if tv, ok := info.Types[x.X]; ok {
				_, isMap := tv.Type.Underlying().(*types.Map)
				if call, ok := x.X.(*ast.CallExpr); ok && strings.HasPrefix(types.ExprString(call.Fun), "maps.") {
					isMap = true // an iterator over one
				}
				if isMap {
					used[name] = true
					if orders[name] == "" {
						report(x.Pos(), name+" ranges over a map, in an order that changes; sort, or say why it cannot matter in tidy's list")
					}
				}
			}
		}
		return true
	})
}

// declared names a function as *T.F, T.F or F.
func declared(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	return types.ExprString(f.Recv.List[0].Type) + "." + f.Name.Name
}

type sources struct {
	set  *token.FileSet
	list []*ast.File
}

// parsed reads the package in dir without its tests.
func parsed(t *testing.T, dir string) sources {
	t.Helper()
	s := sources{set: token.NewFileSet()}
	names, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(s.set, n, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.list = append(s.list, f)
	}
	return s
}

// exportData gives the compiler's export files of everything the pure packages
// depend on.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	args := []string{"list", "-e", "-export", "-deps", "-json=ImportPath,Export"}
	for _, d := range pure {
		if _, err := os.Stat(filepath.Join(root(t), d)); err == nil {
			args = append(args, "./"+d)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Export != "" {
			files[p.ImportPath] = p.Export
		}
	}
	return files
}
