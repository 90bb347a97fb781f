package peers

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Print writes the report: every load, then the goals as Markdown.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%d cores, %s %s/%s; %d rounds of each side in turns; medians of rounds; times only as what is added to the floor's of the same round\n",
		runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, r.Config.Rounds)
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "without %s\n", s)
	}
	for _, l := range r.Config.loads() {
		r.printLoad(w, l.Name)
	}
	r.printTokens(w)
	r.printStreams(w)
	r.printFaults(w)
	r.printGoals(w)
}

func (r *Report) printLoad(w io.Writer, load string) {
	fmt.Fprintf(w, "\n%s\n%-14s %8s %7s %9s %17s %17s %10s %9s %9s %9s %8s\n", load, "side", "requests", "failed", "streams/s",
		"TTFT p50 (added)", "TTFT p99 (added)", "ITL p99", "CPU ms", "× fakes", "helpers", "RSS MiB")
	for _, s := range r.Sides {
		rounds := of(r.Rounds, s, load)
		n, failed := 0, 0
		why := map[string]int{}
		for _, x := range rounds {
			n, failed = n+x.Requests, failed+x.Failed
			for k, v := range x.Failures {
				why[k] += v
			}
		}
		time50, time99 := median(rounds, ttft50), median(rounds, ttft99)
		fmt.Fprintf(w, "%-14s %8d %7d %9.1f %17s %17s %10.1f", s, n, failed, median(rounds, func(x Round) float64 { return x.Rate }),
			with(time50, added(r.Rounds, s, load, ttft50), isRouter(s)), with(time99, added(r.Rounds, s, load, ttft99), isRouter(s)),
			millis(median(rounds, func(x Round) time.Duration { return x.Gap99 })))
		if isRouter(s) {
			fmt.Fprintf(w, " %9.2f %9.2f %9.2f %8.0f", millis(median(rounds, func(x Round) time.Duration { return x.Router })),
				median(rounds, func(x Round) float64 { return ratio(x.Router, x.Fakes) }), millis(median(rounds, func(x Round) time.Duration { return x.Helpers })),
				float64(median(rounds, func(x Round) int64 { return x.RSS }))/(1<<20))
		} else {
			fmt.Fprintf(w, " %9s %9.2f", "(fakes)", millis(median(rounds, func(x Round) time.Duration { return x.Fakes })))
		}
		fmt.Fprintln(w)
		for _, k := range sorted(why) {
			fmt.Fprintf(w, "    %d × %s\n", why[k], k)
		}
	}
}

func with(t, more time.Duration, show bool) string {
	if !show {
		return fmt.Sprintf("%.1f", millis(t))
	}
	return fmt.Sprintf("%.1f (%+.1f)", millis(t), millis(more))
}

func sorted(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (r *Report) printTokens(w io.Writer) {
	fmt.Fprintf(w, "\nCPU for one relayed token, %d streams 20 ms apart\n", relayClients)
	for _, s := range r.Sides {
		if v, ok := r.perToken(s); ok && isRouter(s) {
			fmt.Fprintf(w, "%-14s %6.1f µs, %.2f × D's fake\n", s, r.tokenMicros(s), v)
		}
	}
}

func (r *Report) printStreams(w io.Writer) {
	for _, s := range r.Sides {
		o, ok := r.Open[s]
		if !ok {
			continue
		}
		fmt.Fprintf(w, "%-14s %d streams open: %.0f → %.0f MiB, %.1f KiB a stream; %d whole; begun at %.0f/s\n", s, o.Streams,
			float64(o.Before)/(1<<20), float64(o.During)/(1<<20), float64(o.PerStream)/(1<<10), o.Whole, o.HandoffsASecond)
		if o.Goroutines[0] > 0 {
			fmt.Fprintf(w, "    goroutines %d → %d → %d, descriptors %d → %d → %d; back %.0f s after the last end\n", o.Goroutines[0], o.Goroutines[1], o.Goroutines[2],
				o.Descriptors[0], o.Descriptors[1], o.Descriptors[2], o.Settled.Seconds())
		}
		for _, k := range sorted(o.Failures) {
			fmt.Fprintf(w, "    %d × %s\n", o.Failures[k], k)
		}
	}
}

func (r *Report) printFaults(w io.Writer) {
	for _, f := range r.Faults {
		fmt.Fprintf(w, "\n%s\n", f.Name)
		for _, s := range append([]string{Ours}, r.Config.Routers...) {
			if v, ok := f.Values[s]; ok {
				fmt.Fprintf(w, "%-14s %4d  %s\n", s, v, f.Words[s])
			}
		}
	}
}

// printGoals is Markdown, to be pasted.
func (r *Report) printGoals(w io.Writer) {
	fmt.Fprintln(w, "\n| what | best other router | must | stretch | Surehand | verdict |\n|---|---|---|---|---|---|")
	for _, g := range r.Goals() {
		format := "%.0f"
		if g.decimals {
			format = "%.2f"
		}
		ours, stretch := fmt.Sprintf(format, g.Ours), fmt.Sprintf("%g", g.Stretch)
		if g.Missing != "" {
			ours = "–"
		}
		if g.NoStretch {
			stretch = ""
		}
		what := g.What
		if g.Unit != "" {
			what += ", " + g.Unit
		}
		fmt.Fprintf(w, "| %s | %s | %g | %s | %s | %s |\n", strings.ReplaceAll(what, "|", "/"), g.Best, g.Must, stretch, ours, g.Verdict())
	}
}
