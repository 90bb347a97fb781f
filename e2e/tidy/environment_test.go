package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// readers of the environment, beside commands and tests.
var environment = map[string]string{
	"main.go":     "dispatches",
	"workers/cli": "the command line; it tells everything else what it was told",
	"e2e":         "the proof's own switches",
	"deploy":      "a module of its own: the embedded server's command",
}

// Code that reads the environment has a parameter that its signature hides.
func TestOnlyCommandsReadTheEnvironment(t *testing.T) {
	goFiles(t, ".go", func(path string, src []byte) {
		parts := strings.Split(path, "/")
		if strings.HasSuffix(path, "_test.go") || slices.Contains(parts, "cmd") || !strings.Contains(string(src), "env(") && !strings.Contains(string(src), "Env(") {
			return
		}
		for k := range environment {
			if below(path, k) {
				return
			}
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "Getenv" || s.Sel.Name == "LookupEnv") {
				if id, ok := s.X.(*ast.Ident); ok && id.Name == "os" {
					t.Errorf("%s: reads the environment", set.Position(s.Pos()))
				}
			}
			return true
		})
	})
}
