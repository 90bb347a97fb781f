package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is one change of one line.
type mutant struct {
	file  string
	line  int // from 0
	from  string
	to    string
	tests []string // arguments of go test, the quickest first
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s  =>  %s", m.file, m.line+1, strings.TrimSpace(m.from), strings.TrimSpace(m.to))
}

// key names a mutant whatever its line number is.
func (m mutant) key() string {
	return m.file + ": " + strings.TrimSpace(m.from) + " => " + strings.TrimSpace(m.to)
}

func (m mutant) apply(src []byte) []byte {
	lines := bytes.Split(src, []byte("\n"))
	lines[m.line] = []byte(m.to)
	return bytes.Join(lines, []byte("\n"))
}

// target is a part of the code and the tests that prove it.
type target struct {
	files []string
	tests []string
}

const simulated = "./e2e/sim -run Museum|Regressions|EveryFault|Whole"

// targets are the fence, the ledger, undo and leases.
var targets = []target{
	{[]string{"transferd/fence/target.go", "transferd/fence/source.go", "transferd/fence/control.go", "transferd/fence/engine.go", "transferd/fence/landing.go", "transferd/fence/reading.go"},
		[]string{"./transferd/fence", simulated, "./transferd/daemon ./transferd/control ./transferd/session"}},
	{[]string{"contracts/handoff/targets.go", "contracts/handoff/targets_guard.go", "contracts/handoff/sources.go", "contracts/handoff/sources_guard.go", "contracts/handoff/fencing.go", "contracts/handoff/ending.go",
		"contracts/handoff/readers.go", "contracts/handoff/lease.go", "contracts/handoff/capacity.go", "contracts/handoff/pins.go"},
		[]string{"./contracts/handoff", simulated, "./contracts/handoff/explore", "./transferd/fence"}},
	{[]string{"activities/ledger/memledger/promises.go", "activities/ledger/memledger/claims.go"},
		[]string{"./activities/ledger/memledger", "./e2e/check", simulated}},
	{[]string{"activities/undo.go", "activities/renew.go", "activities/attempts.go", "activities/commit.go", "activities/reader.go"},
		[]string{"./activities", "./workflows -short", simulated}},
}

// change is a way to break a line.
type change struct {
	match *regexp.Regexp
	to    string
}

var changes = []change{
	{regexp.MustCompile(`^(\s*(?:\} else )?if )(.*; )?([^;]+) \{$`), "${1}${2}!(${3}) {"},
	{regexp.MustCompile(`^(\s*case )([^"']*(?:==|!=|<|>|&&|\|\||!).*):$`), "${1}!(${2}):"},
	{regexp.MustCompile(`^(.*) && (.*)$`), "${1} || ${2}"},
	{regexp.MustCompile(`^(.*[a-z)]) >= (.*)$`), "${1} > ${2}"},
	{regexp.MustCompile(`^(.*[a-z)]) < (.*)$`), "${1} <= ${2}"},
	{regexp.MustCompile(`^(\s*)(delete\(.*\)|close\(.*\)|\w+(?:\.\w+)+ = .*|\w+(?:\.\w+)+(?:\+\+|--)|[a-z]\w*(?:\.\w+)*\.(?:settle|stop|Stop|Forget|hold|retire|give|Unpin|Pin|cancel|touch|reap|Notify|Set|step|stepTarget|stepSource|supersede)\w*\(.*\))$`), "${1}{} // ${2}"},
}

// find lists every change of every line of the targets.
func find(only string) ([]mutant, error) {
	var out []mutant
	for _, t := range targets {
		for _, f := range t.files {
			if !strings.Contains(f, only) {
				continue
			}
			src, err := os.ReadFile(filepath.FromSlash(f))
			if err != nil {
				return nil, err
			}
			for i, l := range strings.Split(string(src), "\n") {
				if strings.HasPrefix(strings.TrimSpace(l), "//") {
					continue
				}
				for _, c := range changes {
					if to := c.match.ReplaceAllString(l, c.to); to != l {
						out = append(out, mutant{f, i, l, to, t.tests})
						break
					}
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no mutant of %q; run it from the repository's root", only)
	}
	return out, nil
}
