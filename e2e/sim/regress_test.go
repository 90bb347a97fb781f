package sim

import (
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestRegressions runs every case that once failed, or shows what the protocol
// does under a fault, under ten seeds from its own on: all must hold, and its own
// must end as the file says. A line of a file is a strike; go test ./e2e/sim -run
// Regressions -rewrite writes how it ends now.
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
			for range 9 {
				c.Seed++
				wantHolds(t, c)
			}
			c.Seed = s
			return told(wantHolds(t, c))
		})
	})
}

// told is how a run ends, in the words of the transcripts: which step of the
// interleaving came first is not what a file is about.
func told(r Report) string {
	last := map[string]string{}
	for _, l := range r.Transcript {
		f := strings.Fields(l)
		if len(f) > 3 && strings.HasPrefix(f[1], "e") && strings.HasSuffix(f[2], ":") && f[0] != "w" && !strings.HasPrefix(f[0], "g") {
			last[f[0]+" "+f[1]] = f[len(f)-1]
		}
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(last)) {
		fmt.Fprintf(&b, "%s: %s\n", k, last[k])
	}
	fmt.Fprintf(&b, "client: %s\nworkflow: %s\n", r.Client, r.Outcome)
	return b.String()
}

// file is a failed run as its regression file will be; its transcript follows.
func file(r Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\nrun seed=%d\n", strings.Join(r.Violations, "\n# "), r.Case.Seed)
	for _, x := range r.Case.Strikes {
		fmt.Fprintln(&b, x)
	}
	fmt.Fprintf(&b, "----\n%s", told(r))
	return b.String()
}

// transcript is all that happened.
func transcript(r Report) string { return "\ntranscript:\n" + r.Text() }

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
