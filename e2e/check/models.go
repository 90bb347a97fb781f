package check

import (
	"fmt"
	"slices"
	"strings"
)

// Ownership is one attempt at its TD (rules 4, 7 and 8): closed and aborted are
// final, an undo never takes a commit back, and every answer is the present. A
// lease or an engine may end it at any time by itself.
var Ownership = Model{Name: "ownership", First: "unknown", Step: func(state string, op Op, answer string) []string {
	var out []string
	for _, s := range withSilent(state, map[string][]string{"opened": {"closed"}, "committed": {"aborted"}}) {
		out = append(out, own(s, op.Name, answer)...)
	}
	return out
}}

// own is one operation in one state: what it answers, and where it leads.
func own(s, name, answer string) []string {
	says, to := "", s
	switch name {
	case "open":
		says = "opened"
		switch s {
		case "unknown", "opened":
			to = "opened"
		case "committed":
			says = "committed"
		default:
			says = s
		}
	case "commit":
		says = "committed"
		switch s {
		case "opened", "committed":
			to = "committed"
		case "unknown":
			says = "refused" // nothing is open here: another life, or not yet
		default:
			says = s
		}
	case "undo":
		switch s {
		case "unknown", "opened", "closed":
			says, to = "closed", "closed"
		default:
			says = s
		}
	case "release":
		switch s {
		case "unknown", "opened", "closed":
			says, to = "closed", "closed"
		default:
			says, to = "aborted", "aborted"
		}
	}
	switch {
	case answer == Unknown:
		return []string{s, to}
	case answer == "refused":
		return []string{s} // a guard's refusal moves nothing
	case answer == says:
		return []string{to}
	}
	return nil
}

// Grants is one grant at its TP (S5, S15): no read begins once it is closed.
var Grants = Model{Name: "grants", First: "none", Step: func(state string, op Op, answer string) []string {
	var out []string
	for _, s := range withSilent(state, map[string][]string{"open": {"closed"}}) {
		says, to := "refused", s
		switch {
		case op.Name == "open" && s != "closed":
			says, to = "ok", "open"
		case op.Name == "read" && s == "open":
			says = "ok"
		case op.Name == "close":
			says, to = "ok", "closed"
		}
		switch answer {
		case Unknown:
			out = append(out, s, to)
		case says:
			out = append(out, to)
		}
	}
	return out
}}

// withSilent is a state and what it may have become by itself.
func withSilent(s string, by map[string][]string) []string { return append([]string{s}, by[s]...) }

// Submit is one idempotency key (S13): the first claim wins, the same key with
// another body is refused, and what was settled sticks. States are free,
// held|handoff|body and settled|handoff|body.
var Submit = Model{Name: "idempotent submit", First: "free", Step: func(s string, op Op, answer string) []string {
	part := append(strings.Split(s, "|"), "", "")
	kind, who, body := part[0], part[1], part[2]
	says, to := "ok", s
	switch op.Name {
	case "claim":
		switch {
		case kind == "free":
			says, to = "mine", "held|"+op.Who+"|"+op.Body
		case body != op.Body:
			says = "reused"
		case who == op.Who && kind == "held":
			says = "mine"
		default:
			says = kind + " by " + who
		}
	case "unclaim":
		switch {
		case kind == "held" && who == op.Who:
			to = "free"
		case kind == "settled" && who == op.Who:
			says = "conflict"
		}
	case "settle":
		switch {
		case kind == "free", who == op.Who && body == op.Body:
			to = "settled|" + op.Who + "|" + op.Body
		case who == op.Who:
			says = "reused"
		default:
			says = "conflict"
		}
	}
	switch {
	case answer == Unknown:
		return []string{s, to}
	case answer == says:
		return []string{to}
	case answer == "closed" && op.Name == "claim":
		return []string{s} // this handoff's unclaim came first
	}
	return nil
}}

// Promises is one engine's account of total blocks (S8, rule 16): a set keyed by
// attempt, whose release leaves a tombstone. A state is its entries, sorted.
func Promises(total uint32) Model {
	return Model{Name: "promises", First: "", Step: func(state string, op Op, answer string) []string {
		entries := strings.Fields(state)
		used := uint32(0)
		held, dead := false, false
		for _, e := range entries {
			var who string
			var n uint32
			_, _ = fmt.Sscanf(strings.ReplaceAll(e, "=", " "), "%s %d", &who, &n) // written below
			used += n
			held = held || who == op.Who && n > 0
			dead = dead || who == op.Who && n == 0
		}
		says, to := "ok", state
		switch {
		case op.Name == "release":
			entries = slices.DeleteFunc(entries, func(e string) bool { return strings.HasPrefix(e, op.Who+"=") })
			to = sorted(append(entries, op.Who+"=0"))
		case dead:
			says = "closed"
		case held:
		case used+op.Size > total:
			says = "capacity"
		default:
			to = sorted(append(entries, fmt.Sprintf("%s=%d", op.Who, op.Size)))
		}
		switch answer {
		case Unknown:
			return []string{state, to}
		case says:
			return []string{to}
		}
		return nil
	}}
}

func sorted(es []string) string {
	slices.Sort(es)
	return strings.Join(es, " ")
}
