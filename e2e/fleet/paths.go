package fleet

import (
	"github.com/surehand/surehand/contracts/handoff"
)

// gap stands in a trace where a watcher had to begin anew: of what was under way
// then, wherever it was, something may have been missed.
const gap = "gap"

// Paths says why events cannot have happened: what each daemon told of an
// attempt has to be a path of the transition table (S3, S6). Attempts whose
// beginning nobody watched are left out.
func Paths(events []Event) error {
	var trace handoff.Trace
	type key struct {
		node, machine string
		life          uint64
		attempt       handoff.Attempt
	}
	known, unjudged := map[key]bool{}, map[key]bool{}
	for _, e := range events {
		if e.Machine == gap {
			for k := range known {
				unjudged[k] = true
			}
			continue
		}
		k := key{e.Node, e.Machine, e.Life, e.Attempt}
		if !known[k] {
			known[k] = true
			unjudged[k] = e.From != "" && e.From != "unknown"
		}
		if unjudged[k] {
			continue
		}
		err := trace.Add(handoff.TraceEvent{Node: handoff.NodeID(e.Node), Incarnation: handoff.Incarnation(e.Life), Machine: e.Machine,
			Attempt: e.Attempt, Event: e.Name, From: e.From, To: e.To, Code: e.Code})
		if err != nil {
			return err
		}
	}
	return nil
}
