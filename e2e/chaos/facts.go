package chaos

import (
	"context"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/check"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Facts are what a run since a mark left to be judged by the checkers of check:
// what daemons told, what is held at rest, the ledger's accounts. Handoffs have
// their public names. What clients saw is added with Saw.
func (s *Stage) Facts(ctx context.Context, since fleet.Mark) (*check.Facts, error) {
	f := &check.Facts{Held: s.Held(ctx), Limits: map[string][2]int{}}
	live := map[string]int{}
	for _, e := range s.Since(since) {
		if e.Machine != "target" && e.Machine != "source" {
			continue
		}
		a := e.Attempt
		a.Handoff = handoff.HandoffID(fault.PublicID(a))
		f.Events = append(f.Events, handoff.TraceEvent{Node: handoff.NodeID(e.Node), Incarnation: handoff.Incarnation(e.Life), Machine: e.Machine,
			Attempt: a, Event: e.Name, From: e.From, To: e.To, Code: e.Code})
		where := e.Machine + "s at " + e.Node
		if e.Became(e.Machine, "opened") {
			live[where]++
		}
		if e.From != e.To && (e.To == "closed" || e.To == "aborted") && e.From != "unknown" && e.From != "" {
			live[where]--
		}
		f.Limits[where] = [2]int{max(f.Limits[where][0], live[where]), s.Options.Slots}
	}
	accounts, err := s.Accounts(ctx)
	f.Ledgers = accounts
	return f, err
}

// Saw is an answer as a fact; want is how many tokens a whole one has. A
// synthetic engine ends with an error rather than decode over bytes that are not
// its attempt's, so a token told is a token of pure state.
func Saw(a traffic.Ask, got traffic.Answer, want int) check.Asked {
	out := check.Asked{Tenant: a.Tenant, Key: a.Key, Body: a.Prompt, Handoff: handoff.HandoffID(got.Handoff), Want: want, Whole: got.Whole() == nil,
		Resumes: len(got.Resumed), Pure: true, Prompt: got.Usage.Prompt, Completion: got.Usage.Completion, Direct: got.Usage.Direct,
		Cached: got.Usage.Cached, Recomputed: got.Usage.Recomputed}
	n, err := got.Numbered()
	for i := range n {
		out.Tokens = append(out.Tokens, i)
	}
	if err != nil {
		out.Tokens = append(out.Tokens, -1) // whatever came was not due
	}
	if got.Failure != nil {
		out.Refused, out.Before = got.Failure.Code, got.Status != 200
	}
	return out
}
