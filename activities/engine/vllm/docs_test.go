package vllm

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

var update = flag.Bool("update", false, "write the tables into docs/engines.md")

const (
	page   = "../../../docs/engines.md"
	opens  = "<!-- made by activities/engine/vllm, go test -update -->\n"
	closes = "<!-- end -->\n"
)

func TestTheDocsSayWhatTheCodeUses(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), opens)
	_, after, ok2 := strings.Cut(rest, closes)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", page)
	}
	want := before + opens + Markdown() + closes + after
	if want == string(b) {
		return
	}
	if !*update {
		t.Fatalf("%s is behind the code: go test ./activities/engine/vllm -run Docs -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOurLeaseIsShorterThanTheEngines(t *testing.T) {
	for _, c := range Table {
		if c.Own() <= 0 || c.Own() >= c.Lease {
			t.Errorf("%s: ours %s, the engine's %s", c.Style, c.Own(), c.Lease)
		}
	}
	if _, err := Of("p2p-nccl"); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Error(err)
	}
}
