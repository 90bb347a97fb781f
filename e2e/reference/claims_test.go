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
	running  = regexp.MustCompile(`-run ('[^']*'|\S+)`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Benchmark\w+)\(`)
)

// Each command that a document gives for a claim runs at least one test: a test
// that was renamed would show nothing, and say ok.
func TestTheCommandsOfTheDocumentsRunTests(t *testing.T) {
	docs, err := filepath.Glob(at("docs/*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	for _, path := range append(docs, at("README.md"), at("ARCHITECTURE.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range claim.FindAllStringSubmatch(string(text), -1) {
			if err := runs(m[1]); err != "" {
				t.Errorf("%s: `go test %s`: %s", filepath.Base(path), m[1], err)
			}
		}
	}
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
