package vllmbench

import (
	"fmt"
	"io"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

// Report is what was seen.
type Report struct {
	Config
	Ways   []Way
	States []State
}

// Way is what one path gave.
type Way struct {
	Name     string
	First    map[int][]time.Duration // by the prompt's sentences
	Requests int
	CPU      Cost // of all its requests
}

// State is what somebody takes while it lasts.
type State struct {
	Name, Who string
	Share     float64 // of a core
	Bytes     int64   // proportional
}

const (
	holds         = "holding"
	theirP        = "P with our connector"
	theirD        = "D with our connector"
	mostOfHolding = 0.05 // of a core: what a server with our connector may take while it holds
)

// Missed names the servers that take more than they may while they hold.
func (r *Report) Missed() (out []string) {
	judged := 0
	for _, s := range r.States {
		if s.Name != holds || s.Who != theirP && s.Who != theirD {
			continue
		}
		judged++
		if s.Share > mostOfHolding {
			out = append(out, fmt.Sprintf("%s takes %.1f %% of a core", s.Who, 100*s.Share))
		}
	}
	if judged != 2 {
		out = append(out, fmt.Sprintf("%d of 2 were seen holding", judged))
	}
	return out
}

// Print writes the tables, in Markdown.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%d requests of each way and length, one at a time, ways in turns; every text is that of one engine alone.\n\n", r.Rounds*r.Requests)
	fmt.Fprint(w, "| time to first token, p50 (p90), ms |")
	for _, n := range r.Prompts {
		fmt.Fprintf(w, " %d sentences |", n)
	}
	fmt.Fprint(w, " CPU ms a request: engines | transferd | fronts | gateway, Temporal, store |\n|---|")
	for range len(r.Prompts) + 4 {
		fmt.Fprint(w, "---|")
	}
	fmt.Fprintln(w)
	for _, way := range r.Ways {
		fmt.Fprintf(w, "| %s |", way.Name)
		for _, n := range r.Prompts {
			fmt.Fprintf(w, " %.1f (%.1f)%s |", ms(traffic.Quantile(way.First[n], 0.5)), ms(traffic.Quantile(way.First[n], 0.9)), r.beside(way, n))
		}
		for _, used := range []time.Duration{way.CPU.Engines, way.CPU.Daemons, way.CPU.Fronts, way.CPU.Rest} {
			fmt.Fprintf(w, " %.1f |", ms(used)/float64(max(way.Requests, 1)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\n| state | who | share of a core | memory, MiB |\n|---|---|---|---|\n")
	for _, s := range r.States {
		fmt.Fprintf(w, "| %s | %s | %.1f %% | %d |\n", s.Name, s.Who, 100*s.Share, s.Bytes>>20)
	}
	verdict := "holds"
	if missed := r.Missed(); len(missed) > 0 {
		verdict = fmt.Sprintf("missed: %v", missed)
	}
	fmt.Fprintf(w, "\nA server with our connector takes at most %.0f %% of a core while it holds: %s.\n", 100*mostOfHolding, verdict)
}

// beside says how much longer than by NIXL alone it took.
func (r *Report) beside(w Way, n int) string {
	floor := traffic.Quantile(r.Ways[bare].First[n], 0.5)
	if floor == 0 || w.Name == r.Ways[bare].Name {
		return ""
	}
	took := traffic.Quantile(w.First[n], 0.5)
	return fmt.Sprintf(", %+.1f, ×%.2f", ms(took-floor), float64(took)/float64(floor))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
