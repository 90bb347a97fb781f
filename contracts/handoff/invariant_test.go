package handoff

import (
	"strings"
	"testing"
)

// Checkers are checked: each has a seeded violation that it must report, and
// nothing else may report it.
func TestEachCheckFindsItsSeededViolation(t *testing.T) {
	a, b := testPlan(1, 1).Attempt, testPlan(2, 2).Attempt
	good := func(a Attempt) VisibleTarget {
		return VisibleTarget{Attempt: a, Node: "d0", Want: 1, Pieces: []Origin{1, 1}, Verified: true, Sealed: Digest{1}, Checked: Digest{1}}
	}
	with := func(f func(*VisibleTarget)) *World { v := good(a); f(&v); return &World{Visible: []VisibleTarget{v}} }
	given := good(a)
	given.GivenUp = true
	for _, fine := range []*World{{}, {Visible: []VisibleTarget{good(a)}, Tokens: []Delivery{{a, 0}, {a, 1}}},
		{Visible: []VisibleTarget{given, good(b)}, Tokens: []Delivery{{b, 0}}}, {Ledgers: []LedgerFact{{4, 1, 3}}}} {
		if v := Violations(fine); len(v) > 0 {
			t.Errorf("a good world violates %v", v)
		}
	}
	for _, f := range []struct {
		id string
		w  *World
	}{
		{"S1", with(func(v *VisibleTarget) { v.Pieces = []Origin{1, 2} })},
		{"S2", &World{Visible: []VisibleTarget{good(a), good(b)}}},
		{"S2", &World{Visible: []VisibleTarget{good(b)}, Tokens: []Delivery{{a, 0}}}},
		{"S2", with(func(v *VisibleTarget) { v.Refused = true })},
		{"S2", with(func(v *VisibleTarget) { v.Late = true })},
		{"S3", &World{Targets: []TargetFact{{Attempt: a, State: TargetOpened, Highest: 2}}}},
		{"S4", &World{Writes: []Write{{a, true}, {a, false}}}},
		{"S5", &World{Frees: []Free{{a, 1}}}},
		{"S5", &World{Reads: []Read{{a, true}}}},
		{"S6", with(func(v *VisibleTarget) { v.Verified = false })},
		{"S6", &World{Targets: []TargetFact{{Attempt: a, State: TargetCommitted, Posted: 1}}}},
		{"S6", &World{Undone: []Attempt{a}}},
		{"S7", with(func(v *VisibleTarget) { v.Checked = Digest{2} })},
		{"S8", &World{Ledgers: []LedgerFact{{4, 1, 4}}}},
		{"S9", &World{Rest: true, Held: 1}},
		{"S10", &World{Tokens: []Delivery{{a, 0}, {b, 1}}}},
		{"S10", &World{Tokens: []Delivery{{a, 0}, {a, 0}}}},
		{"S14", &World{Answers: []Answer{{a, true, TargetAborted}}}},
		{"S17", &World{Targets: make([]TargetFact, MaxTargets+MaxTombstones+1)}},
	} {
		v := Violations(f.w)
		if len(v) != 1 || !strings.HasPrefix(v[0], f.id+":") {
			t.Errorf("%s: found %v", f.id, v)
		}
	}
}

func TestEveryPromiseHasACheckOrNamesItsChecker(t *testing.T) {
	for _, inv := range Invariants {
		if inv.Statement == "" || inv.Checker == "" {
			t.Errorf("%s has no statement or no checker", inv.ID)
		}
	}
}
