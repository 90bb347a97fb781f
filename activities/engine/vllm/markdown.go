package vllm

import (
	"fmt"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// Markdown prints the capability table and the gaps for docs/engines.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| what the engine does by itself |")
	for _, c := range Table {
		fmt.Fprintf(&b, " %s |", c.Title)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(Table)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.about)
		for _, c := range Table {
			fmt.Fprintf(&b, " %s |", row.say(c))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n| rule | what an engine alone cannot give | what stands in for it | ends with |\n|---|---|---|---|\n")
	for _, g := range Gaps {
		ends := "-"
		if g.Ends != handoff.CodeNone {
			ends = "`" + g.Ends.String() + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.Rules, g.Missing, g.Instead, ends)
	}
	return b.String()
}

var rows = []struct {
	about string
	say   func(Capabilities) string
}{
	{"`--transfer`", func(c Capabilities) string { return "`" + string(c.Style) + "`" }},
	{"P pins the prompt's blocks for", func(c Capabilities) string { return c.Lease.String() + " (`" + c.LeaseSetting + "`)" }},
	{"our own lease, counted from before P is asked", func(c Capabilities) string { return c.Own().String() }},
	{"D renews P's lease while it holds the request", func(c Capabilities) string { return yes(c.Heartbeat) }},
	{"P counts what expired", func(c Capabilities) string { return yes(c.Counters) }},
	{"a prefill is stopped by", func(c Capabilities) string { return c.AbortBefore }},
	{"after the prefill P frees when D refuses the request", frees},
	{"a decode is stopped by", func(c Capabilities) string { return c.AbortAfter }},
	{"reclaim timer when nobody comes", func(c Capabilities) string { return c.Lease.String() }},
	{"D holds room before the prefill", func(c Capabilities) string { return yes(c.ReserveFirst) }},
	{"bytes are checked on D", func(c Capabilities) string { return yes(c.Checksum) }},
	{"a fetch under way can be revoked", func(c Capabilities) string { return yes(c.Revoke) }},
	{"seen on real engines, vLLM 0.32.0 for CPUs", func(c Capabilities) string { return c.Seen }},
}

func frees(c Capabilities) string {
	if c.RejectionNeedsFetch {
		return "yes, where this D has fetched from this P before; another one is made to fetch, for one token that is dropped"
	}
	return yes(c.Rejection)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
