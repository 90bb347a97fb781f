package reference

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/transferd/cmd/flagtable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the references anew")

func at(path string) string { return filepath.Join("..", "..", path) }

func keep(t *testing.T, file, mark, text string) {
	t.Helper()
	if err := flagtable.Keep(at(file), mark, text, *update); err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, path string) (*ast.File, string) {
	t.Helper()
	src, err := os.ReadFile(at(path))
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f, string(src)
}

func comment(groups ...*ast.CommentGroup) string {
	var all []string
	for _, g := range groups {
		if text := strings.TrimSpace(g.Text()); text != "" {
			all = append(all, strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "|", "\\|"))
		}
	}
	return strings.Join(all, " ")
}

func TestTheLimitsAreThoseOfTheCode(t *testing.T) {
	var b strings.Builder
	for _, path := range []string{"workers/gateway/limits.go", "contracts/handoff/limits.go"} {
		f, src := read(t, path)
		fmt.Fprintf(&b, "### %s\n\n| | | |\n|---|---|---|\n", path)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if len(v.Values) != 1 {
					continue
				}
				value := src[v.Values[0].Pos()-1 : v.Values[0].End()-1]
				fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.Names[0].Name, value, comment(v.Doc, v.Comment))
			}
		}
		b.WriteString("\n")
	}
	keep(t, "docs/configuration.md", "limits", b.String())
}

func TestTheAccessFilesKeysAreThoseOfTheCode(t *testing.T) {
	var b strings.Builder
	b.WriteString("| of | key | type | |\n|---|---|---|---|\n")
	for _, path := range []string{"workers/access/file.go", "workers/access/caller.go", "workers/access/token.go"} {
		f, src := read(t, path)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				if field.Tag == nil {
					continue
				}
				tag, err := strconv.Unquote(field.Tag.Value)
				if err != nil {
					t.Fatal(err)
				}
				kind := src[field.Type.Pos()-1 : field.Type.End()-1]
				key := reflect.StructTag(tag).Get("yaml")
				if key == ",inline" {
					key = "those of " + kind
				} else {
					key = "`" + key + "`"
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", spec.Name.Name, key, kind, comment(field.Doc, field.Comment))
			}
			return true
		})
	}
	keep(t, "docs/configuration.md", "access", b.String()+"\n")
}
