package check

import (
	"fmt"

	"github.com/surehand/surehand/contracts/handoff"
)

// Facts are what one run of real processes left to be judged by: what clients
// saw, what daemons told, what was held at rest. Whoever cannot see a part
// leaves it empty; the checks that need it then say nothing.
type Facts struct {
	Asked   []Asked
	Events  []handoff.TraceEvent // in the order in which they were told
	Ledgers []handoff.LedgerFact
	Held    []string          // at rest
	Replays map[string]string // history → why it does not replay
	Limits  map[string][2]int // of what → how many there were at most, and may be
}

// Asked is one request with its answer. The answer's tokens are told as the
// number that each has in its attempt's run.
type Asked struct {
	Tenant, Key, Body string
	Handoff           handoff.HandoffID // as the events have it
	Refused           string            // the code of a typed refusal
	Before            bool              // the refusal came before the commit
	Tokens            []int
	Want              int // tokens of a whole answer
	Whole             bool
	Resumes           int
	Pure              bool // the engine found every byte it decoded over to be this attempt's

	Prompt, Completion, Direct, Cached, Recomputed int
}

// Direct are the checkers of S1–S18 over the facts of a run, each by itself.
var Direct = []struct {
	ID    string
	Check func(*Facts) []string
}{
	{"S1", pure}, {"S2", oneOwner}, {"S3", epochsGrow}, {"S4", staysFinal}, {"S5", askedWhileHeld}, {"S6", notHalf},
	{"S7", mismatched}, {"S8", conserved}, {"S9", func(f *Facts) []string { return f.Held }}, {"S10", oneRun},
	{"S11", boundary}, {"S12", honest}, {"S13", idempotent}, {"S14", failClosed}, {"S15", granted}, {"S16", walled},
	{"S17", bounded}, {"S18", replays},
}

// Broken runs them all.
func (f *Facts) Broken() (out []string) {
	for _, c := range Direct {
		for _, why := range c.Check(f) {
			out = append(out, c.ID+": "+why)
		}
	}
	return out
}

func accepted(e handoff.TraceEvent) bool { return e.Code == "" || e.Code == handoff.CodeNone.String() }

// became says whether an event moved a machine into a state.
func became(e handoff.TraceEvent, machine, state string) bool {
	return e.Machine == machine && e.To == state && e.From != state && (accepted(e) || e.Event == "expire")
}

// place is a record of one life of a daemon.
type place struct {
	node    handoff.NodeID
	life    handoff.Incarnation
	attempt handoff.Attempt
}

func at(e handoff.TraceEvent) place { return place{e.Node, e.Incarnation, e.Attempt} }

func pure(f *Facts) (out []string) {
	for _, a := range f.Asked {
		if len(a.Tokens) > 0 && !a.Pure {
			out = append(out, fmt.Sprintf("%s decoded over bytes of another's", a.Handoff))
		}
	}
	return out
}

// oneOwner: an older attempt does not become visible after a newer one, and none
// twice. Two in their order are no violation: the reader gave the earlier up.
func oneOwner(f *Facts) (out []string) {
	owner := map[handoff.HandoffID]handoff.Attempt{}
	for _, e := range f.Events {
		if !became(e, "target", "committed") || e.Event == handoff.TraceAdopt {
			continue
		}
		if o, ok := owner[e.Attempt.Handoff]; ok && o.Epoch >= e.Attempt.Epoch {
			out = append(out, fmt.Sprintf("%s became visible after %s", e.Attempt, o))
		}
		owner[e.Attempt.Handoff] = e.Attempt
	}
	return out
}

func epochsGrow(f *Facts) (out []string) {
	type family struct {
		node handoff.NodeID
		life handoff.Incarnation
		id   handoff.HandoffID
	}
	highest := map[family]handoff.Epoch{}
	for _, e := range f.Events {
		k := family{e.Node, e.Incarnation, e.Attempt.Handoff}
		if e.Machine != "target" || !became(e, "target", "opened") {
			continue
		}
		if e.Attempt.Epoch < highest[k] {
			out = append(out, fmt.Sprintf("%s was opened at %s, which had seen epoch %d", e.Attempt, e.Node, highest[k]))
		}
		highest[k] = max(highest[k], e.Attempt.Epoch)
	}
	return out
}

// staysFinal: what is over takes no operation any more, so no stale write can be
// counted for it.
func staysFinal(f *Facts) (out []string) {
	over := map[place]string{}
	for _, e := range f.Events {
		if e.Machine != "target" {
			continue
		}
		if was := over[at(e)]; was != "" && accepted(e) && e.To != was && e.Event != handoff.TraceForget {
			out = append(out, fmt.Sprintf("%s at %s was %s, and %s made it %s", e.Attempt, e.Node, was, e.Event, e.To))
		}
		if e.To == "closed" || e.To == "aborted" {
			over[at(e)] = e.To
		}
	}
	return out
}

// askedWhileHeld: a question is answered yes only while the source is held.
func askedWhileHeld(f *Facts) (out []string) {
	closed := map[place]bool{}
	for _, e := range f.Events {
		if e.Machine != "source" {
			continue
		}
		if e.Event == handoff.SourceQuestion.String() && accepted(e) && closed[at(e)] {
			out = append(out, fmt.Sprintf("%s was validated at %s after its source was closed", e.Attempt, e.Node))
		}
		closed[at(e)] = closed[at(e)] || e.To == "closed"
	}
	return out
}

// notHalf: only what was validated in this life, or adopted, becomes visible.
func notHalf(f *Facts) (out []string) {
	validated := map[place]bool{}
	for _, e := range f.Events {
		if became(e, "target", "validated") {
			validated[at(e)] = true
		}
		if became(e, "target", "committed") && e.Event != handoff.TraceAdopt && !validated[at(e)] {
			out = append(out, fmt.Sprintf("%s became visible at %s and was not validated", e.Attempt, e.Node))
		}
	}
	return out
}

// mismatched: an attempt that was refused for what differs never becomes visible.
func mismatched(f *Facts) (out []string) {
	differs := map[handoff.Attempt]bool{}
	for _, e := range f.Events {
		differs[e.Attempt] = differs[e.Attempt] || e.Code == handoff.CodeMismatch.String()
		if became(e, "target", "committed") && differs[e.Attempt] {
			out = append(out, fmt.Sprintf("%s became visible though its sides differ", e.Attempt))
		}
	}
	return out
}

func conserved(f *Facts) (out []string) {
	for _, l := range f.Ledgers {
		if l.Used+l.Free != l.Total {
			out = append(out, fmt.Sprintf("%d used and %d free of %d", l.Used, l.Free, l.Total))
		}
	}
	return out
}
