package workflows_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// TestStoredHistoriesReplay replays every history that a release left in
// testdata/histories/<release>/ on the present code (S18). The end-to-end tests
// write them.
func TestStoredHistoriesReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no history is stored in testdata/histories")
		}
		t.Skip("no history is stored yet in testdata/histories")
	}
	for _, path := range files {
		t.Run(strings.TrimPrefix(path, "testdata/histories/"), func(t *testing.T) {
			r := worker.NewWorkflowReplayer()
			r.RegisterWorkflowWithOptions(workflows.Handoff, workflow.RegisterOptions{Name: steps.Workflow})
			if err := r.ReplayWorkflowHistoryFromJSONFile(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), path); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWorkflowCodeIsDeterministic runs workflowcheck: no time, random source,
// goroutine, map order or lock may reach workflow code.
func TestWorkflowCodeIsDeterministic(t *testing.T) {
	if testing.Short() {
		t.Skip("workflowcheck loads every dependency")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	tool := []string{"tool", "-modfile=tools/go.mod", "workflowcheck"}
	run := func(args ...string) (string, error) {
		c := exec.Command("go", append(tool, args...)...)
		c.Dir = root
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run("-V=full"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("workflowcheck: %v\n%s", err, out)
		}
		t.Skipf("workflowcheck cannot be had here: %v\n%s", err, out)
	}
	if out, err := run("./workflows/..."); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
