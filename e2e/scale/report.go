package scale

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
)

// Report of a run.
type Report struct {
	Config
	Results []Result
	Skipped []string
	Failed  []string // cells that could not be measured, and why
}

// The musts, by what is recorded.
var (
	leastRate = map[string]float64{"request": 80, "handoff": 150}
	mostCPU   = map[string]float64{"request": 20, "handoff": 10} // ms of Temporal and Redis
)

// Must is one thing that has to hold.
type Must struct {
	What, Got string
	Holds     bool
}

// Musts says which hold. A rate is that of the cheapest engines, a cost that of
// the engines which use Redis.
func (r *Report) Musts() (out []Must) {
	for _, x := range r.Results {
		if x.Burst {
			out = append(out, Must{fmt.Sprintf("%d requests in one moment (%s engines): each whole, or refused with a type and when to ask again", r.Burst, x.Engines),
				fmt.Sprintf("%d whole, %d refused, %d wrong", x.Whole, sum(x.Refused), sum(x.Wrong)), len(x.Wrong) == 0})
			continue
		}
		if n := sum(x.Wrong); n > 0 {
			out = append(out, Must{"no wrong answer: " + x.String(), fmt.Sprint(n), false})
		}
		if x.Store != SQLite || x.Engines == Nobody {
			continue
		}
		if x.Engines == Native {
			out = append(out, Must{fmt.Sprintf("at least %.0f durable handoffs/s with everything on this machine, record %s", leastRate[x.Record], x.Record),
				fmt.Sprintf("%.0f", x.Rate()), x.Rate() >= leastRate[x.Record]})
			continue
		}
		used := x.Milliseconds(fleet.Temporal) + x.Milliseconds(fleet.Redis)
		out = append(out, Must{fmt.Sprintf("at most %.0f CPU ms of Temporal and Redis a durable handoff, record %s", mostCPU[x.Record], x.Record),
			fmt.Sprintf("%.1f", used), used <= mostCPU[x.Record]})
	}
	return out
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// Print writes Markdown, to be pasted.
func (r *Report) Print(w io.Writer) {
	kinds := append(slices.Clone(fleet.Kinds), generator)
	fmt.Fprintf(w, "closed loops of %d clients for %s, prompts of %d tokens, answers of %d; CPU in ms a handoff\n\n", r.Clients, r.Load, prompt+2, tokens)
	fmt.Fprintf(w, "| store | shards | engines | record | gateways | handoffs/s | %s | all | transactions a handoff | Temporal + store, idle, %% of a core |\n|%s\n",
		strings.Join(kinds, " | "), strings.Repeat("---|", 6+len(kinds)+3))
	for _, x := range r.Results {
		if x.Burst {
			continue
		}
		shards, transactions := "1", "–"
		if x.Store == PostgreSQL {
			shards, transactions = fmt.Sprint(x.Shards), fmt.Sprintf("%.1f", float64(x.Transactions)/float64(max(1, x.Whole)))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %d | %.0f |", x.Store, shards, x.Engines, x.Record, x.Gateways, x.Rate())
		all := 0.0
		for _, kind := range kinds {
			ms := x.Milliseconds(kind)
			all += ms
			fmt.Fprintf(w, " %.2f |", ms)
		}
		idle := x.Idle[fleet.Temporal] + x.Idle[fleet.Postgres]
		fmt.Fprintf(w, " %.2f | %s | %.1f |\n", all, transactions, 100*float64(idle)/float64(max(r.Idle, time.Nanosecond)))
	}
	r.printFloor(w)
	r.printRedis(w)
	for _, x := range r.Results {
		for _, m := range []map[string]int{x.Refused, x.Wrong} {
			for _, k := range sorted(m) {
				fmt.Fprintf(w, "%s: %d × %s\n", x, m[k], k)
			}
		}
	}
	for _, s := range r.Skipped {
		fmt.Fprintln(w, "skipped:", s)
	}
	for _, s := range r.Failed {
		fmt.Fprintln(w, "FAILED:", s)
	}
	fmt.Fprintln(w)
	for _, m := range r.Musts() {
		word := "holds"
		if !m.Holds {
			word = "DOES NOT HOLD"
		}
		fmt.Fprintf(w, "must: %s: %s, %s\n", m.What, m.Got, word)
	}
}

// printFloor tells how much of Temporal's work is the recording itself.
func (r *Report) printFloor(w io.Writer) {
	fmt.Fprintln(w)
	for _, x := range r.Results {
		if x.Engines == Nobody || x.Burst {
			continue
		}
		for _, least := range r.Results {
			if least.Engines == Nobody && least.Store == x.Store && least.Record == x.Record && least.Whole > 0 {
				fmt.Fprintf(w, "%s: %.2f × the CPU of Temporal that an empty workflow takes, %.2f × its handoffs/s\n", x,
					x.Milliseconds(fleet.Temporal)/least.Milliseconds(fleet.Temporal), x.Rate()/least.Rate())
			}
		}
	}
}

// printRedis tells the commands of a handoff, background and all, the most
// frequent first.
func (r *Report) printRedis(w io.Writer) {
	for _, x := range r.Results {
		if x.Calls == nil || x.Burst || x.Whole == 0 {
			continue
		}
		names := make([]string, 0, len(x.Calls))
		for name, n := range x.Calls {
			if n > 0 {
				names = append(names, name)
			}
		}
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(x.Calls[b]-x.Calls[a], strings.Compare(a, b)) })
		each := make([]string, 0, len(names))
		for _, name := range names[:min(len(names), 12)] {
			each = append(each, fmt.Sprintf("%s %.1f", name, float64(x.Calls[name])/float64(x.Whole)))
		}
		fmt.Fprintf(w, "\nRedis, %s: %.1f commands a handoff at %.0f/s (%s)\n", x, float64(sum(x.Calls))/float64(x.Whole), x.Rate(), strings.Join(each, ", "))
	}
	fmt.Fprintln(w)
}

func sorted(m map[string]int) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
