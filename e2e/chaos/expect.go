package chaos

import (
	"fmt"

	"github.com/surehand/surehand/e2e/traffic"
)

// Outcome that a cell requires of the request that was struck.
type Outcome byte

// The outcomes. Besides them a cell requires the invariants of check.go.
const (
	Ends    Outcome = 'E' // whole, or a typed refusal
	Whole   Outcome = 'W' // nothing else will do
	Refuses Outcome = 'R' // the stream ends with a typed error
	Cut     Outcome = 'C' // the client's own gateway is the victim: its connection may break
	Left    Outcome = 'L' // the client itself went; only what is left behind is looked at
)

func (o Outcome) String() string {
	switch o {
	case Ends:
		return "whole or typed"
	case Whole:
		return "whole"
	case Refuses:
		return "typed refusal"
	case Cut:
		return "cut, whole or typed"
	case Left:
		return "nothing held"
	}
	return fmt.Sprintf("outcome %q", byte(o))
}

// Expected are the outcomes of a row, a letter for each phase in their order.
type Expected string

// in a phase.
func (e Expected) in(p Phase) Outcome {
	for i, q := range Phases {
		if q == p && i < len(e) {
			return Outcome(e[i])
		}
	}
	return Ends
}

// Rows that several faults share. Before the first token a request goes on
// elsewhere when the protocol can prove the old attempt closed, else it is
// refused; after it nothing is sampled again.
//
//	phases: admit reserve prefill transfer commit decode cancel idle
const (
	gone     Expected = "CCCCCCLW" // the gateway
	spare    Expected = "WWWWWWLW" // P or its daemon: another P computes
	decodes  Expected = "WWWWERLW" // D: what it told is over with it
	keeps    Expected = "EEEEEELW" // D's daemon
	promises Expected = "EEEEWWLW" // Redis
	decides  Expected = "EEEEEWLW" // Temporal
)

// dies is what a process's death asks for.
var dies = map[string]Expected{"g1": gone, "p1": spare, "tp1": spare, "d1": decodes, "td1": keeps, "redis": promises, "temporal": decides}

// hangs is what is asked where a process is silent for a while and then goes on:
// what it was doing may still end well.
var hangs = map[string]Expected{"g1": gone, "p1": "EEEEWWLW", "tp1": "EEEEWWLW", "d1": "EEEEEELW", "td1": keeps, "redis": promises, "temporal": decides}

// expected of a fault's cell.
func (f Fault) expected(victim string, p Phase) Outcome {
	row, ok := f.Expect[victim]
	if !ok {
		row = f.Expect["*"]
	}
	return row.in(p)
}

// Required is nil when an answer is what a cell asks for, of so many tokens.
func Required(want Outcome, a traffic.Answer, tokens int) error {
	if _, err := a.Numbered(); err != nil && want != Left {
		return fmt.Errorf("the stream is not one sampling: %w", err)
	}
	switch want {
	case Whole:
		return a.Counted(tokens)
	case Ends:
		return a.Typed()
	case Refuses:
		if err := a.Typed(); err != nil || a.Failure != nil {
			return err
		}
		return fmt.Errorf("whole, where a typed error was due")
	case Cut:
		if a.Broken != nil {
			return nil
		}
		return a.Typed()
	}
	return nil
}

// Verdict is an answer in one word or two.
func Verdict(a traffic.Answer) string {
	switch {
	case a.Whole() == nil:
		return fmt.Sprintf("whole (%d tokens)", a.Usage.Completion)
	case a.Failure != nil && a.Broken == nil:
		return fmt.Sprintf("%s after %d pieces (%.80s)", a.Failure.Code, a.Pieces, a.Failure.Message)
	}
	return fmt.Sprintf("broken after %d pieces", a.Pieces)
}
