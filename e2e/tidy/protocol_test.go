package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/handoff/explore"
	"github.com/surehand/surehand/contracts/steps"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// glob reads all files that match, one after the other.
func glob(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root(t), pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no files, %v", pattern, err)
	}
	var out strings.Builder
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	return out.String()
}

func word(text, w string) bool {
	return regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(w) + `([^\w-]|$)`).MatchString(text)
}

// Every state stands in doc.go's pictures and in a transcript, as where an event
// leads or where it stays.
func TestEveryStateIsDrawnAndTranscribed(t *testing.T) {
	doc, transcripts := read(t, "contracts/handoff/doc.go"), glob(t, "contracts/handoff/testdata/*.txt")
	var states []string
	for s := handoff.TargetUnknown; s.String() != "out_of_range"; s++ {
		states = append(states, s.String())
	}
	for s := handoff.SourceUnknown; s.String() != "out_of_range"; s++ {
		states = append(states, s.String())
	}
	for _, p := range []handoff.Phase{handoff.PhaseMoving, handoff.PhaseCommitting, handoff.PhaseDecoding, handoff.PhaseFencing, handoff.PhasePlacing, handoff.PhaseClosing, handoff.PhaseEnded} {
		states = append(states, string(p))
	}
	states = append(states, handoff.ReaderDelivering.String(), handoff.ReaderGivenUp.String())
	if len(states) < 20 {
		t.Fatalf("only %v", states)
	}
	for _, s := range states {
		if !word(doc, s) && !word(doc, strings.ReplaceAll(s, "-", " ")) {
			t.Errorf("state %s is not in doc.go", s)
		}
		if !word(transcripts, s) {
			t.Errorf("state %s is in no transcript", s)
		}
	}
}

func TestEveryEventIsTranscribed(t *testing.T) {
	transcripts := glob(t, "contracts/handoff/testdata/*.txt")
	for e := handoff.TargetOpen; e.String() != "out_of_range"; e++ {
		if !regexp.MustCompile(`(?m)^d\d \w+ ` + e.String() + `:`).MatchString(transcripts) {
			t.Errorf("target event %s is in no transcript", e)
		}
	}
	for e := handoff.SourceOpen; e.String() != "out_of_range"; e++ {
		if !regexp.MustCompile(`(?m)^p \w+ ` + e.String() + `:`).MatchString(transcripts) {
			t.Errorf("source event %s is in no transcript", e)
		}
	}
}

// S1–S18, L1–L8 and rules 1–28 are stated, each once, and known by the same names.
func TestEveryPromiseAndRuleIsStated(t *testing.T) {
	doc := read(t, "contracts/handoff/doc.go")
	known := map[string]bool{}
	for _, inv := range handoff.Invariants {
		if known[inv.ID] {
			t.Errorf("%s is stated twice", inv.ID)
		}
		known[inv.ID] = true
		if !word(doc, inv.ID) {
			t.Errorf("%s is not in doc.go", inv.ID)
		}
	}
	for kind, n := range map[string]int{"S": 18, "L": 8} {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprintf("%s%d", kind, i); !known[id] {
				t.Errorf("%s is no invariant", id)
			}
		}
	}
	rules := doc[strings.Index(doc, "# Rules"):strings.Index(doc, "# Safety")]
	for i := 1; i <= 28; i++ {
		if !strings.Contains(rules, fmt.Sprintf("\n//  %d. ", i)) {
			t.Errorf("rule %d is not in doc.go", i)
		}
	}
}

// Every counterexample has a transcript; M6 and M10 have two halves in one, M9's
// number is M9's alone.
func TestEveryCounterexampleHasATranscript(t *testing.T) {
	for i := 1; i <= 16; i++ {
		names, err := filepath.Glob(filepath.Join(root(t), fmt.Sprintf("contracts/handoff/testdata/m%02d_*.txt", i)))
		if err != nil || len(names) != 1 {
			t.Errorf("M%d has %d transcripts", i, len(names))
		}
	}
}

// Every rule that can be left out is left out by a mutant, so none stands
// unproved.
func TestEveryRuleHasAMutant(t *testing.T) {
	small := handoff.Omit(handoff.RulePins, handoff.RuleCapacitySet) // searched by explore.Pins and explore.Ledger
	left := small
	for _, m := range explore.Mutants {
		left |= m.Omit
	}
	names := regexp.MustCompile(`(?m)^\t(Rule\w+)\s+Rule = (\d+)`).FindAllStringSubmatch(read(t, "contracts/handoff/rules.go"), -1)
	if len(names) < 25 {
		t.Fatalf("found only %d rules", len(names))
	}
	for _, n := range names {
		var r int
		if _, err := fmt.Sscan(n[2], &r); err != nil {
			t.Fatal(err)
		}
		if !left.Has(handoff.Rule(r)) {
			t.Errorf("%s is left out by no mutant", n[1])
		}
	}
}

// Every step has an undo, or says why not.
func TestEveryStepHasAnUndo(t *testing.T) {
	for _, s := range regexp.MustCompile(`Step = "([\w-]+)"`).FindAllStringSubmatch(glob(t, "contracts/handoff/step.go")+glob(t, "contracts/steps/*.go"), -1) {
		if s[1] == string(handoff.StepDecode) {
			continue // what failures name, not a step
		}
		if steps.Undo[handoff.Step(s[1])] == "" {
			t.Errorf("step %s has no undo and no reason", s[1])
		}
	}
}
