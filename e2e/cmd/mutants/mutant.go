package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// mutant is one change of one place.
type mutant struct {
	id    int
	key   string
	file  string
	line  int
	last  int // line
	from  string
	to    string
	edits []edit
	tests []suite
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: %s  =>  %s", m.file, m.line, m.from, m.to)
}

// name gives every mutant a key that does not depend on line numbers.
func name(ms []*mutant) {
	seen := map[string]int{}
	for _, m := range ms {
		m.key = m.file + ": " + m.from + " => " + m.to
		if seen[m.key]++; seen[m.key] > 1 {
			m.key += fmt.Sprintf(" #%d", seen[m.key])
		}
	}
}

// edit replaces length bytes at an offset. Of edits at one offset those that
// close go first, inner ones before outer ones.
type edit struct {
	offset, length int
	text           string
	closes         bool
}

// finder collects the mutants of one file. Each is written so that it acts only
// while it is the one chosen: all of them are compiled at once.
type finder struct {
	fset  *token.FileSet
	src   []byte
	file  string
	tests []suite
	next  *int
	found []*mutant
	conds map[ast.Expr]bool // conditions as a whole, which are negated
}

// find lists every change of the targets' files.
func find(only string) ([]*mutant, error) {
	var out []*mutant
	next := 1
	for _, t := range targets {
		for _, f := range t.files {
			if !strings.Contains(f, only) {
				continue
			}
			ms, err := findIn(f, t.tests, &next)
			if err != nil {
				return nil, err
			}
			out = append(out, ms...)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no mutant of %q; run it from the repository's root", only)
	}
	name(out)
	return out, nil
}

func findIn(file string, tests []suite, next *int) ([]*mutant, error) {
	src, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{fset: fset, src: src, file: file, tests: tests, next: next, conds: map[ast.Expr]bool{}}
	ast.Inspect(tree, f.visit)
	return f.found, nil
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR // constants and types hold nothing that runs
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, x := range c.(*ast.CaseClause).List {
					f.negate(x)
				}
			}
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.BinaryExpr:
		if !f.conds[n] {
			f.binary(n)
		}
	}
	return true
}

// negate turns a condition round. The operators of a condition are left alone:
// one change of a line is enough.
func (f *finder) negate(x ast.Expr) {
	m := f.add(x, "!("+f.text(x)+")")
	m.edits = []edit{f.open(x, "(("), f.close(x, fmt.Sprintf(") != mutantOn(%d))", m.id))}
	ast.Inspect(x, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			f.conds[e] = true
		}
		_, isFunc := n.(*ast.FuncLit)
		return !isFunc
	})
}

func (f *finder) binary(b *ast.BinaryExpr) {
	x, y := f.text(b.X), f.text(b.Y)
	op := edit{offset: f.offset(b.OpPos), length: len(b.Op.String())}
	switch b.Op {
	case token.LAND, token.LOR:
		name, to := "mutantOr", token.LOR
		if b.Op == token.LOR {
			name, to = "mutantAnd", token.LAND
		}
		m := f.add(b, x+" "+to.String()+" "+y)
		op.text = ", func() bool { return ("
		m.edits = []edit{f.open(b, fmt.Sprintf("%s(%d, ", name, m.id)), op, f.close(b, ") })")}
	case token.GEQ, token.LEQ, token.GTR, token.LSS:
		strict := map[token.Token]token.Token{token.GEQ: token.GTR, token.LEQ: token.LSS, token.GTR: token.GEQ, token.LSS: token.LEQ}
		m := f.add(b, x+" "+strict[b.Op].String()+" "+y)
		m.edits = []edit{f.open(b, "(("), f.close(b, fmt.Sprintf(") != (mutantOn(%d) && %s == %s))", m.id, x, y))}
	}
}

// statements leaves out calls, stores and counts, one at a time.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if locks(s) {
				continue
			}
		case *ast.IncDecStmt:
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
			if _, field := s.Lhs[0].(*ast.SelectorExpr); !field {
				if _, index := s.Lhs[0].(*ast.IndexExpr); !index {
					continue
				}
			}
		default:
			continue
		}
		m := f.add(s, "")
		m.edits = []edit{f.open(s, fmt.Sprintf("if !mutantOn(%d) { ", m.id)), f.close(s, " }")}
	}
}

// locks says whether a call takes or gives a lock: without it the tests hang or
// race, and only the race detector would say what a mutant of it is worth.
func locks(s *ast.ExprStmt) bool {
	c, ok := s.X.(*ast.CallExpr)
	if !ok {
		return true
	}
	sel, ok := c.Fun.(*ast.SelectorExpr)
	return ok && (strings.HasSuffix(strings.ToLower(sel.Sel.Name), "lock") || sel.Sel.Name == "enter" || sel.Sel.Name == "leave")
}

func (f *finder) add(n ast.Node, to string) *mutant {
	m := &mutant{id: *f.next, file: f.file, line: f.fset.Position(n.Pos()).Line, last: f.fset.Position(n.End()).Line, from: oneLine(f.text(n)), to: oneLine(to), tests: f.tests}
	*f.next++
	f.found = append(f.found, m)
	return m
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 160 {
		s = s[:160] + "…"
	}
	return s
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }
func (f *finder) text(n ast.Node) string { return string(f.src[f.offset(n.Pos()):f.offset(n.End())]) }
func (f *finder) open(n ast.Node, text string) edit {
	return edit{offset: f.offset(n.Pos()), text: text}
}
func (f *finder) close(n ast.Node, text string) edit {
	return edit{offset: f.offset(n.End()), text: text, closes: true}
}

// apply makes all the edits of a file's mutants.
func apply(src []byte, ms []*mutant) []byte {
	type placed struct {
		edit
		order int
	}
	var all []placed
	for _, m := range ms {
		for _, e := range m.edits {
			all = append(all, placed{e, len(all)})
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := all[i], all[j]
		switch {
		case a.offset != b.offset:
			return a.offset < b.offset
		case a.closes != b.closes:
			return a.closes
		case a.closes:
			return a.order > b.order
		}
		return a.order < b.order
	})
	var out []byte
	at := 0
	for _, e := range all {
		out = append(append(out, src[at:e.offset]...), e.text...)
		at = e.offset + e.length
	}
	return append(out, src[at:]...)
}
