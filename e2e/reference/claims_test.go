package reference

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	claim    = regexp.MustCompile("`go test ([^`]*)`")
	tasked   = regexp.MustCompile("`task ([a-z0-9:-]+)")
	program  = regexp.MustCompile(`go run (\./[\w./-]+)`)
	running  = regexp.MustCompile(`-run ('[^']*'|\S+)`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Benchmark\w+)\(`)
)

// Each command that a document gives for a claim runs at least one test: a test
// that was renamed would show nothing, and say ok.
func TestTheCommandsOfTheDocumentsRunTests(t *testing.T) {
	for name, text := range documents(t) {
		for _, m := range claim.FindAllStringSubmatch(text, -1) {
			if err := runs(m[1]); err != "" {
				t.Errorf("%s: `go test %s`: %s", name, m[1], err)
			}
		}
	}
}

// Each task and each program that a document names is there.
func TestTheTasksAndProgramsOfTheDocumentsExist(t *testing.T) {
	tasks, err := os.ReadFile(at("Taskfile.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range documents(t) {
		for _, m := range tasked.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(tasks), "\n  "+m[1]+":\n") {
				t.Errorf("%s: no `task %s`", name, m[1])
			}
		}
		for _, m := range program.FindAllStringSubmatch(text, -1) {
			if files, err := filepath.Glob(filepath.Join(at(m[1]), "*.go")); err != nil || len(files) == 0 {
				t.Errorf("%s: no `go run %s`", name, m[1])
			}
		}
	}
}

func documents(t *testing.T) map[string]string {
	t.Helper()
	docs, err := filepath.Glob(at("docs/*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	out := map[string]string{}
	for _, path := range append(docs, at("README.md"), at("ARCHITECTURE.md"), at("e2e/README.md"), at("transferd/README.md"), at("deploy/temporal/README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path)] = string(text)
	}
	return out
}

// runs says what is wrong with the arguments of a go test; empty: nothing.
func runs(args string) string {
	want := regexp.MustCompile("")
	if m := running.FindStringSubmatch(args); m != nil {
		pattern := strings.ReplaceAll(strings.Trim(m[1], "'"), `\|`, "|")
		var err error
		if want, err = regexp.Compile(pattern); err != nil {
			return err.Error()
		}
	}
	packages := 0
	for _, word := range strings.Fields(running.ReplaceAllString(args, "")) {
		if !strings.HasPrefix(word, "./") {
			continue
		}
		packages++
		if found(word, want) {
			return ""
		}
	}
	if packages == 0 {
		return ""
	}
	return "no such test"
}

func found(pattern string, want *regexp.Regexp) bool {
	dir, deep := strings.CutSuffix(pattern, "/...")
	dir = at(dir)
	hit := false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (!deep || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllStringSubmatch(string(src), -1) {
			hit = hit || want.MatchString(m[1])
		}
		return err
	})
	return err == nil && hit
}
