package tidy

import (
	"path/filepath"
	"strings"
	"testing"
)

// rigs own processes, not goroutines: they count what is held on real daemons.
var rigs = map[string]string{
	"e2e/connector": "a vLLM for all tests, stopped after the last",
	"e2e/llamacpp":  "two P and two D for all tests, stopped after the last",
	"e2e/native":    "a Temporal for all tests, stopped after the last",
	"e2e/vllm":      "two vLLMs for all tests, stopped after the last",
}

// Every package with tests refuses to end with goroutines of its own: a leak is
// told by the run that made it, with the stack of its opener.
func TestEveryTestMainLooksForLeaks(t *testing.T) {
	gate, tests := map[string]bool{}, map[string]bool{}
	goFiles(t, "_test.go", func(path string, src []byte) {
		dir := filepath.Dir(path)
		tests[dir] = tests[dir] || strings.Contains(string(src), "\nfunc Test")
		gate[dir] = gate[dir] || strings.Contains(string(src), "goleak.VerifyTestMain(") || strings.Contains(string(src), "goleak.Find(")
	})
	if len(tests) < 10 {
		t.Fatalf("%d packages with tests", len(tests))
	}
	for dir, has := range tests {
		if has && !gate[dir] && rigs[dir] == "" {
			t.Errorf("%s has no TestMain with goleak.VerifyTestMain", dir)
		}
	}
}
