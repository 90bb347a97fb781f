package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

func event(machine string, epoch handoff.Epoch, name, from, to string) handoff.TraceEvent {
	node := handoff.NodeID("d")
	if machine == "source" {
		node = "p"
	}
	return handoff.TraceEvent{Node: node, Incarnation: 1, Machine: machine, Attempt: handoff.Attempt{Handoff: "h", Epoch: epoch, Nonce: handoff.Nonce(epoch)}, Event: name, From: from, To: to}
}

// good is a run with which nothing is wrong.
func good() *Facts {
	return &Facts{
		Events: []handoff.TraceEvent{
			event("target", 1, "open", "unknown", "opened"), event("source", 1, "open", "unknown", "opened"), event("source", 1, "seal", "opened", "sealed"),
			event("target", 1, "post", "opened", "running"), event("target", 1, "land", "running", "landed"), event("target", 1, "verify", "landed", "verified"),
			event("source", 1, "question", "sealed", "sealed"), event("target", 1, "yes", "verified", "validated"), event("target", 1, "commit", "validated", "committed"),
			event("source", 1, "finish", "sealed", "closed"), event("target", 1, "finish", "committed", "aborted"),
		},
		Asked: []Asked{
			{Tenant: "t", Key: "k", Body: "b", Handoff: "h", Tokens: []int{0, 1, 2}, Want: 3, Whole: true, Pure: true, Prompt: 10, Direct: 10, Completion: 3},
			{Tenant: "t", Key: "k", Body: "b", Handoff: "h", Tokens: []int{0, 1, 2}, Want: 3, Whole: true, Pure: true, Prompt: 10, Direct: 10, Completion: 3},
			{Tenant: "t", Key: "k", Body: "c", Refused: "key_reused", Before: true},
		},
		Ledgers: []handoff.LedgerFact{{Total: 4, Used: 1, Free: 3}},
		Limits:  map[string][2]int{"targets": {4, 512}},
		Replays: map[string]string{"completed": ""},
	}
}

// Each invariant's checker reports the violation that is seeded for it, and
// every one of S1–S18 has one.
func TestEachDirectCheckerReportsItsSeededViolation(t *testing.T) {
	if broken := good().Broken(); len(broken) > 0 {
		t.Fatal("a good run is refused:", broken)
	}
	seeded := map[string]func(*Facts){
		"S1": func(f *Facts) { f.Asked[0].Pure = false },
		"S2": func(f *Facts) {
			yes, commit := event("target", 1, "yes", "verified", "validated"), event("target", 1, "commit", "validated", "committed")
			yes.Node, commit.Node = "d2", "d2"
			f.Events = append(f.Events, yes, commit)
		},
		"S3": func(f *Facts) {
			f.Events = append([]handoff.TraceEvent{event("target", 2, "open", "unknown", "opened")}, f.Events...)
		},
		"S4":  func(f *Facts) { f.Events = append(f.Events, event("target", 1, "post", "aborted", "running")) },
		"S5":  func(f *Facts) { f.Events = append(f.Events, event("source", 1, "question", "closed", "closed")) },
		"S6":  func(f *Facts) { f.Events = slices.Delete(f.Events, 7, 8) },
		"S7":  func(f *Facts) { f.Events[3].Code = handoff.CodeMismatch.String() },
		"S8":  func(f *Facts) { f.Ledgers[0].Free = 4 },
		"S9":  func(f *Facts) { f.Held = []string{"d1: 1 targets"} },
		"S10": func(f *Facts) { f.Asked[0].Tokens, f.Asked[1].Tokens = []int{0, 0, 1}, []int{0, 0, 1} },
		"S11": func(f *Facts) { f.Asked[0].Prompt = 11 },
		"S12": func(f *Facts) {
			f.Asked = append(f.Asked, Asked{Handoff: "other", Direct: 10, Prompt: 10, Whole: true, Pure: true})
		},
		"S13": func(f *Facts) { f.Asked[2].Refused = "" },
		"S14": func(f *Facts) { f.Asked[2].Tokens, f.Asked[2].Pure = []int{0}, true },
		"S15": func(f *Facts) { f.Events = slices.Delete(f.Events, 1, 2) },
		"S16": func(f *Facts) { f.Asked[0].Direct, f.Asked[0].Cached = 6, 4 },
		"S17": func(f *Facts) { f.Limits["targets"] = [2]int{513, 512} },
		"S18": func(f *Facts) { f.Replays["completed"] = "nondeterministic" },
	}
	for _, c := range Direct {
		f := good()
		seed := seeded[c.ID]
		if seed == nil {
			t.Errorf("%s has no seeded violation", c.ID)
			continue
		}
		seed(f)
		broken := f.Broken()
		if len(broken) == 0 || slices.ContainsFunc(broken, func(b string) bool { return !strings.HasPrefix(b, c.ID+":") }) {
			t.Errorf("%s: reported %q", c.ID, broken)
		}
	}
	if len(Direct) != 18 {
		t.Errorf("%d checkers", len(Direct))
	}
}
