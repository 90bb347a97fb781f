package fleet

import (
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

func at(machine, name, from, to, code string) Event {
	return Event{Node: "p", Life: 1, Machine: machine, Attempt: handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 1}, Name: name, From: from, To: to, Code: code}
}

func TestATraceThatCannotHaveHappenedIsReported(t *testing.T) {
	opened := at("target", "open", "unknown", "opened", "none")
	for name, c := range map[string]struct {
		events []Event
		ok     bool
	}{
		"a path":                        {[]Event{opened, at("target", "undo", "opened", "closed", "none")}, true},
		"a commit of what never landed": {[]Event{opened, at("target", "commit", "opened", "committed", "none")}, false},
		"closed and yet committed":      {[]Event{opened, at("target", "undo", "opened", "closed", "none"), at("target", "commit", "closed", "committed", "none")}, false},
		"a move that nobody told":       {[]Event{opened, at("target", "commit", "validated", "committed", "none")}, false},
		"its beginning was missed":      {[]Event{at("target", "commit", "validated", "committed", "none")}, true},
		"a gap":                         {[]Event{opened, {Machine: gap}, at("target", "commit", "validated", "committed", "none")}, true},
	} {
		if err := Paths(c.events); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
