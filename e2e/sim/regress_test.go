package sim

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestRegressions runs every case that once failed, or shows what the protocol
// does under a fault, and compares its transcript. A line of a file is a strike;
// go test ./e2e/sim -run Regressions -rewrite writes what happens now.
func TestRegressions(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			var s uint64
			d.ScanArgs(t, "seed", &s)
			c, err := ParseCase(s, strings.ReplaceAll(d.Input, "\n", ";"))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return told(Run(t, c))
		})
	})
}

// told is a run in the form of a regression file.
func told(r Report) string {
	return r.Text() + fmt.Sprintf("client: %s\nworkflow: %s\n", r.Client, r.Outcome)
}

// file is a failed run as its regression file will be.
func file(r Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\nrun seed=%d\n", strings.Join(r.Violations, "\n# "), r.Case.Seed)
	for _, x := range r.Case.Strikes {
		fmt.Fprintln(&b, x)
	}
	fmt.Fprintf(&b, "----\n%s", told(r))
	return b.String()
}

// keep writes it where TestRegressions finds it.
func keep(t *testing.T, r Report) {
	h := fnv.New32a()
	fmt.Fprint(h, r.Case)
	path := filepath.Join("testdata", fmt.Sprintf("found_%08x.txt", h.Sum32()))
	if err := os.WriteFile(path, []byte(file(r)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("kept as %s", path)
}
