package check

import "strings"

// Streams is one idempotency key as clients see it (S13): the first submit makes
// a handoff, the same body joins it, another body is refused, and only a handoff
// that ended before its commit leaves the key free again. States are free and
// held|handoff|body; answers are new H, joined H, reused, and refused where the
// handoff ended typed: before its commit, which frees the key, or after it, which
// does not. A lost answer may have made the handoff of that name, or one that
// nobody knows yet.
var Streams = Model{Name: "submits", First: "free", Step: func(s string, op Op, answer string) []string {
	part := append(strings.Split(s, "|"), "", "")
	kind, who, body := part[0], part[1], part[2]
	word, id, _ := strings.Cut(answer, " ")
	switch {
	case (answer == Unknown || answer == "refused") && kind == "free": // a typed end may have come after the commit
		return []string{s, "held|?|" + op.Body}
	case answer == Unknown, answer == "refused":
		return []string{s, "free"}
	case answer == "reused" && kind == "held" && body != op.Body:
		return []string{s}
	case word == "new" && kind == "free":
		return []string{"held|" + id + "|" + op.Body}
	case word == "joined" && kind == "held" && body == op.Body && (who == id || who == "?"):
		return []string{"held|" + id + "|" + op.Body}
	}
	return nil
}}
