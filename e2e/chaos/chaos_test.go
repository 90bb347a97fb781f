package chaos

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryCellHasARequiredOutcome(t *testing.T) {
	if n := len(All()); n < 240 {
		t.Errorf("%d cells, want at least 240", n)
	}
	for _, c := range All() {
		f, err := find(c.Fault)
		if err != nil {
			t.Fatal(err)
		}
		row, ok := f.Expect[c.Victim]
		if !ok {
			row = f.Expect["*"]
		}
		if len(row) != len(Phases) {
			t.Errorf("%s: the row %q has no letter for each of %d phases", c, row, len(Phases))
		}
		if o := f.expected(c.Victim, c.Phase); strings.HasPrefix(o.String(), "outcome") {
			t.Errorf("%s: %s", c, o)
		}
	}
}

func TestAFewCellsAreASpreadOfAllFaults(t *testing.T) {
	c := Campaign{Seed: 7, Cells: len(Faults())}
	cells, err := c.choose()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, cell := range cells {
		seen[cell.Fault] = true
	}
	if len(seen) != len(Faults()) {
		t.Errorf("%d of %d faults in %v", len(seen), len(Faults()), cells)
	}
	same, err := (&Campaign{Seed: 7, Cells: len(cells)}).choose()
	if err != nil || !slices.Equal(cells, same) {
		t.Errorf("the same seed chose %v, %v", same, err)
	}
	if other, err := (&Campaign{Seed: 8, Cells: len(cells)}).choose(); err != nil || slices.Equal(cells, other) {
		t.Errorf("another seed chose the same: %v", err)
	}
	if only, err := (&Campaign{Only: "kill/*/commit"}).choose(); err != nil || len(only) != len(everyone) {
		t.Errorf("%v, %v", only, err)
	}
	if _, err := (&Campaign{Only: "nothing/*/*"}).choose(); err == nil {
		t.Error("a pattern of no cell was accepted")
	}
}

// answer of a synthetic engine with so many tokens.
func answer(tokens int, done bool) traffic.Answer {
	var words []string
	for i := range tokens {
		words = append(words, "w"+string(rune('0'+i)))
	}
	a := traffic.Answer{Status: 200, Text: strings.Join(words, " "), Pieces: tokens, Usage: traffic.Usage{Completion: tokens}}
	if done {
		a.Done, a.Finish = true, "length"
	}
	return a
}

func refused(pieces int) traffic.Answer {
	a := answer(pieces, false)
	at := uint32(pieces)
	a.Failure = &traffic.Failure{Code: "stream_broken", Type: "server_error", Position: &at}
	return a
}

func TestWhatAnOutcomeAsksForIsAsked(t *testing.T) {
	broken := answer(2, false)
	broken.Broken = errors.New("reset")
	other := answer(3, true)
	other.Text = "w0 w2 w1"
	for _, c := range []struct {
		what string
		want Outcome
		got  traffic.Answer
		ok   bool
	}{
		{"a whole stream", Whole, answer(3, true), true},
		{"a short one", Whole, answer(2, true), false},
		{"a refusal for whole", Whole, refused(0), false},
		{"a refusal", Ends, refused(2), true},
		{"a broken connection", Ends, broken, false},
		{"a broken connection of a dead gateway", Cut, broken, true},
		{"another's token, even so", Cut, other, false},
		{"whole where a refusal is due", Refuses, answer(3, true), false},
		{"a refusal where it is due", Refuses, refused(2), true},
		{"whatever the client that left saw", Left, broken, true},
	} {
		if err := Required(c.want, c.got, 3); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestTwoOwnersAreSeen(t *testing.T) {
	at := func(epoch handoff.Epoch) fleet.Event {
		return fleet.Event{Machine: "target", From: handoff.TargetValidated.String(), To: handoff.TargetCommitted.String(),
			Attempt: handoff.Attempt{Handoff: "h.1", Epoch: epoch, Nonce: handoff.Nonce(epoch)}}
	}
	if err := OneOwner([]fleet.Event{at(1), at(2)}); err != nil {
		t.Error(err)
	}
	if err := OneOwner([]fleet.Event{at(2), at(1)}); err == nil {
		t.Error("an older attempt became visible after a newer one, and nobody minds")
	}
}

// A report shows what broke, what held and what could not be run, and escapes
// what came from elsewhere.
func TestAReportShowsEveryKindOfCell(t *testing.T) {
	c := Campaign{Seed: 3, Command: "chaos --only ", Began: time.Now(), Results: []Result{
		{Cell: Cell{"kill", "p1", Transfer}, Required: "whole", Verdict: "whole (60 tokens)", Events: []string{"tp1.i1 source"}, History: "1 STARTED"},
		{Cell: Cell{"kill", "d1", Decode}, Verdict: "broken", Broken: []string{"at rest: <b>held</b>"}},
		{Cell: Cell{"cut", "d1", Decode}, Skipped: "needs root"},
	}}
	for name, write := range map[string]func(io.Writer) error{"html": c.WriteHTML, "text": c.WriteText, "json": c.WriteJSON} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(name, err)
		}
		text := out.String()
		if !strings.Contains(text, "kill") || !strings.Contains(text, "at rest: ") {
			t.Errorf("%s: %s", name, text)
		}
		switch name {
		case "html":
			for _, want := range []string{`class="hold"`, `class="broken"`, `class="skipped"`, `class="not-run"`, "&lt;b&gt;held", "chaos --only kill/p1/transfer", "tp1.i1 source", "1 STARTED"} {
				if !strings.Contains(text, want) {
					t.Errorf("the report lacks %s", want)
				}
			}
		case "json":
			later := Campaign{Seed: 4}
			if err := later.ReadJSON(&out); err != nil || later.Seed != 3 || len(later.Results) != 1 || later.Results[0].Cell != c.Results[0].Cell {
				t.Errorf("another sitting goes on from %+v: %v", later, err)
			}
		}
	}
	if hold, broken, skipped := c.Counts(); hold != 1 || broken != 1 || skipped != 1 {
		t.Error(hold, broken, skipped)
	}
}

// A rare state is counted, and one that never came is told as well.
func TestRareStatesAreCountedAndTheMissingOnesTold(t *testing.T) {
	rare := Sometimes([]fleet.Event{{Machine: "target", Name: "adopt", From: "unknown", To: "committed"}})
	seen := 0
	for _, r := range rare {
		seen += r.Seen
		if never := strings.Contains(r.String(), "never"); never != (r.Seen == 0) {
			t.Error(r)
		}
	}
	if seen != 1 || len(rare) != len(sometimes) {
		t.Errorf("%v", rare)
	}
}

// A whole run that never saw a rare state says so; a part of one does not.
func TestARunOfEveryCellThatNeverSawARareStateIsWeak(t *testing.T) {
	c := &Campaign{seen: Tally{}}
	for _, s := range sometimes {
		c.seen[s.Name] = 1
	}
	for _, cell := range All() {
		c.Results = append(c.Results, Result{Cell: cell})
	}
	if err := c.Weak(); err != nil {
		t.Fatal(err)
	}
	delete(c.seen, sometimes[3].Name)
	if err := c.Weak(); err == nil || !strings.Contains(err.Error(), sometimes[3].Name) {
		t.Fatal(err)
	}
	c.Results[0].Skipped = "no root"
	if err := c.Weak(); err != nil {
		t.Fatal(err)
	}
	c.Results = c.Results[1:]
	if err := c.Weak(); err != nil {
		t.Fatal(err)
	}
}

// D's engine dies in a decode: its daemon abandons what is committed, which only
// *finish* then ends.
func TestAnEngineThatDiesInItsDecodeIsARareState(t *testing.T) {
	rare := Sometimes([]fleet.Event{{Machine: "target", Name: "abandon", From: "committed", To: "committed"}, {Machine: "target", Name: "finish", From: "committed", To: "aborted"}})
	if rare[3].Seen != 1 || rare[3].Name != sometimes[3].Name {
		t.Fatalf("%+v", rare)
	}
}
