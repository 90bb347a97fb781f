package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Report of a run.
type Report struct {
	Config
	Load    float64 // of the machine in the minute before
	Rounds  []Round
	History History
}

// The musts.
const (
	mostWritesToCommit = 2.0
	mostWritesToEnd    = 5.0
	mostAdded          = 3 * time.Millisecond // TTFT p50, at few clients
	fewClients         = 8
)

// of gives the rounds of a side, in their order.
func (r *Report) of(side Side, clients int) []Round {
	return slices.DeleteFunc(slices.Clone(r.Rounds), func(x Round) bool { return x.Side != side || x.Clients != clients })
}

// Added50 is the median over rounds of Surehand's median less the floor's of
// the same round.
func (r *Report) Added50(clients int) time.Duration {
	floor, ours := r.of(Bare, clients), r.of(Surehand, clients)
	var added []time.Duration
	for i := range min(len(floor), len(ours)) {
		added = append(added, ours[i].FirstToken50-floor[i].FirstToken50)
	}
	return traffic.Quantile(added, .5)
}

// Added99 compares all rounds together: one has too few requests.
func (r *Report) Added99(clients int) time.Duration {
	return first(r.of(Surehand, clients), .99) - first(r.of(Bare, clients), .99)
}

// first is a quantile of the time to first token over all rounds.
func first(rounds []Round, q float64) time.Duration {
	var all []time.Duration
	for _, x := range rounds {
		all = append(all, x.First...)
	}
	return traffic.Quantile(all, q)
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "prefill %s of %d tokens, answers of %d tokens %s apart, %d P and %d D, %d rounds in turns, one gateway, clients %s\n\n",
		r.Prefill, r.PromptTokens, r.Tokens, r.Step, r.Engines, r.Engines, r.Config.Rounds, r.beginning())
	if cores := float64(runtime.NumCPU()); r.Load > cores/2 {
		fmt.Fprintf(w, "CAUTION: %.1f others wanted the %g cores before this began; times and CPU are theirs as well\n\n", r.Load, cores)
	}
	fmt.Fprintf(w, "%-4s %-9s %9s %9s %9s %9s %11s %8s\n", "c", "side", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "handoffs/s", "refused")
	for _, c := range r.Clients {
		for _, side := range []Side{Bare, Surehand} {
			rounds := r.of(side, c)
			fmt.Fprintf(w, "%-4d %-9s %9s %9s %9s %9s %11.1f %8d\n", c, side, millis(first(rounds, .5)), millis(first(rounds, .99)),
				median(rounds, func(x Round) time.Duration { return x.Gap50 }), median(rounds, func(x Round) time.Duration { return x.Gap99 }), rate(rounds), refused(rounds))
		}
		fmt.Fprintf(w, "%-4d %-9s %9s %9s %19s %10.0f%%\n", c, "added", millis(r.Added50(c)), millis(r.Added99(c)), "",
			100*rate(r.of(Surehand, c))/rate(r.of(Bare, c)))
	}
	r.printWays(w)
	r.printCPU(w)
	r.printRedis(w)
	fmt.Fprintf(w, "\nhistory of one handoff: %.1f events; %.2f writes to the commit, %.2f to the end\n",
		r.History.Events, r.History.WritesToCommit, r.History.ToEnd)
	for _, m := range r.Musts() {
		fmt.Fprintln(w, m)
	}
}

// beginning says how the clients of a loop begin: answers of equal length keep
// those who began together together.
func (r *Report) beginning() string {
	if r.AtOnce {
		return "all at once"
	}
	return "spread over an answer's time"
}

func (r *Report) printCPU(w io.Writer) {
	kinds := append(slices.Clone(fleet.Kinds), generator)
	fmt.Fprintf(w, "\nCPU ms a handoff\n%-4s %-9s %s\n", "c", "side", header(kinds))
	for _, c := range r.Clients {
		for _, side := range []Side{Bare, Surehand} {
			rounds := r.of(side, c)
			fmt.Fprintf(w, "%-4d %-9s", c, side)
			var sum float64
			for _, kind := range kinds {
				used := cpu(rounds, kind)
				sum += used
				fmt.Fprintf(w, " %9.2f", used)
			}
			fmt.Fprintf(w, " %9.2f\n", sum)
		}
	}
}

// printRedis tells the store's commands of a handoff: those of Surehand's rounds
// less those that the background made in the floor's.
func (r *Report) printRedis(w io.Writer) {
	for _, c := range r.Clients {
		var sum [2]float64
		var took [2]time.Duration
		n := 0
		for i, side := range []Side{Bare, Surehand} {
			for _, x := range r.of(side, c) {
				sum[i], took[i] = sum[i]+float64(x.Redis), took[i]+x.Took
				if side == Surehand {
					n += x.Requests
				}
			}
		}
		if sum[1] > 0 && n > 0 && took[0] > 0 {
			idle := sum[0] / took[0].Seconds()
			fmt.Fprintf(w, "Redis at c=%d: %.1f commands a handoff, beside %.0f a second of the fleet's own\n", c, (sum[1]-idle*took[1].Seconds())/float64(n), idle)
		}
	}
}

func header(kinds []string) string {
	var out strings.Builder
	for _, k := range append(slices.Clone(kinds), "all") {
		fmt.Fprintf(&out, " %9s", k)
	}
	return strings.TrimPrefix(out.String(), " ")
}

// Must is one thing that has to hold.
type Must struct {
	What  string
	Got   string
	Holds bool
}

func (m Must) String() string {
	word := "holds"
	if !m.Holds {
		word = "DOES NOT HOLD"
	}
	return fmt.Sprintf("must: %s: %s, %s", m.What, m.Got, word)
}

// Musts says which hold.
func (r *Report) Musts() []Must {
	out := []Must{
		{fmt.Sprintf("at most %g history writes to the commit", mostWritesToCommit), fmt.Sprintf("%.2f", r.History.WritesToCommit), r.History.WritesToCommit <= mostWritesToCommit},
		{fmt.Sprintf("at most %g history writes to the end", mostWritesToEnd), fmt.Sprintf("%.2f", r.History.ToEnd), r.History.ToEnd <= mostWritesToEnd},
	}
	for _, c := range r.Clients {
		if c <= fewClients {
			added := r.Added50(c)
			out = append(out, Must{fmt.Sprintf("added TTFT p50 at most %s at c=%d", mostAdded, c), millis(added), added <= mostAdded})
		}
	}
	return out
}

func median(rounds []Round, value func(Round) time.Duration) string {
	var all []time.Duration
	for _, x := range rounds {
		all = append(all, value(x))
	}
	return millis(traffic.Quantile(all, .5))
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2fms", float64(d)/float64(time.Millisecond))
}

func rate(rounds []Round) float64 {
	var all []float64
	for _, x := range rounds {
		all = append(all, float64(x.Whole)/x.Took.Seconds())
	}
	return traffic.Quantile(all, .5)
}

func refused(rounds []Round) (n int) {
	for _, x := range rounds {
		n += x.Refused
	}
	return n
}

func cpu(rounds []Round, kind string) float64 {
	var used time.Duration
	n := 0
	for _, x := range rounds {
		used, n = used+x.CPU[kind], n+x.Whole
	}
	return float64(used) / float64(time.Millisecond) / float64(max(1, n))
}
