package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/bare"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Way is where the time to one first token went, as the handoff's own time line
// tells, or the floor's own clock. Reserve runs beside the prefill; the others
// follow each other.
type Way struct {
	Reserve  time.Duration
	Prefill  time.Duration
	Transfer time.Duration // what the prefill does not hide
	Decided  time.Duration // until the workflow asked for the commit
	Commit   time.Duration
	Rest     time.Duration // between client and gateway, either way, and D's first step
}

// ways reads them from the histories of a round's answers.
func (b *bench) ways(ctx context.Context, answers []traffic.Answer) (out []Way, err error) {
	for _, a := range answers {
		if a.Failure != nil {
			continue
		}
		o, err := b.f.Outcome(ctx, fleet.DefaultTenant, a.Handoff)
		if err != nil {
			return nil, err
		}
		at := map[handoff.Step][2]time.Duration{}
		for _, s := range o.Spans {
			at[s.Step] = [2]time.Duration{time.Duration(s.Start) * time.Microsecond, time.Duration(s.End) * time.Microsecond}
		}
		p, t, c := at[handoff.StepPrefill], at[handoff.StepTransfer], at[handoff.StepCommit]
		out = append(out, Way{Reserve: at[handoff.StepReserve][1], Prefill: p[1], Transfer: t[1] - p[1], Decided: c[0] - t[1], Commit: c[1] - c[0], Rest: a.FirstToken - c[1]})
	}
	return out, nil
}

func bareWay(at bare.Times, firstToken time.Duration) Way {
	return Way{Reserve: at.Reserved, Prefill: at.Prefilled, Transfer: at.Moved - at.Prefilled, Commit: at.Committed - at.Moved, Rest: firstToken - at.Committed}
}

// printWays writes the medians of each part.
func (r *Report) printWays(w io.Writer) {
	fmt.Fprintf(w, "\nwhere the time to a first token goes (medians)\n%-4s %-9s %9s %9s %9s %9s %9s %9s\n", "c", "side", "reserve", "prefill", "transfer", "decided", "commit", "rest")
	for _, c := range r.Clients {
		for _, side := range []Side{Bare, Surehand} {
			var all []Way
			for _, x := range r.of(side, c) {
				all = append(all, x.Ways...)
			}
			fmt.Fprintf(w, "%-4d %-9s", c, side)
			for _, of := range []func(Way) time.Duration{
				func(x Way) time.Duration { return x.Reserve },
				func(x Way) time.Duration { return x.Prefill },
				func(x Way) time.Duration { return x.Transfer },
				func(x Way) time.Duration { return x.Decided },
				func(x Way) time.Duration { return x.Commit },
				func(x Way) time.Duration { return x.Rest },
			} {
				d := make([]time.Duration, len(all))
				for i, x := range all {
					d[i] = of(x)
				}
				fmt.Fprintf(w, " %9s", millis(traffic.Quantile(d, .5)))
			}
			fmt.Fprintln(w)
		}
	}
}
