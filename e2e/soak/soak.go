package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
)

// Config of one soak.
type Config struct {
	For     time.Duration
	Clients int
	Every   time.Duration // between two samples
	Faults  time.Duration // between two of them, about; 0: none
	Seed    uint64
	Out     io.Writer // progress
}

// warmUp is the part of the run that no line is laid through.
const warmUp = 0.25

// Report is what a soak found.
type Report struct {
	Took   time.Duration
	Window time.Duration
	Points int
	Counts map[string]int
	Rows   []Row
	Wrong  []error // answers that were neither whole nor typed, and what was held at the end
}

// Row is one measure's verdict.
type Row struct {
	Name  string
	Line  Line
	Bound string
	Grows bool
}

// Run starts a fleet, loads it, samples it and stops it.
func Run(ctx context.Context, p fleet.Programs, c Config) (r Report, err error) {
	s, err := chaos.Open(ctx, p, chaos.Options())
	defer func() { err = errors.Join(err, s.Close()) }()
	if err != nil {
		return r, err
	}
	l := &load{stage: s, seed: c.Seed, counts: map[string]int{}}
	at, values, err := l.run(ctx, c)
	if err != nil {
		return r, err
	}
	r.Counts, r.Wrong = l.counts, l.wrong
	if held := s.AtRest(context.WithoutCancel(ctx), chaos.RestWithin); held != nil {
		r.Wrong = append(r.Wrong, held)
	}
	if len(r.Wrong) > 0 {
		fmt.Fprint(c.Out, s.Logs())
	}
	r.Took = at[len(at)-1]
	return r, r.judge(at, values)
}

// run keeps the load up and samples beside it.
func (l *load) run(ctx context.Context, c Config) (at []time.Duration, values []map[string]float64, err error) {
	loading, stop := context.WithTimeout(ctx, c.For)
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for n := range c.Clients {
		all.Go(func() { l.client(loading, n) })
	}
	if c.Faults > 0 {
		all.Go(func() { l.stumble(loading, c.Faults) })
	}
	began := time.Now()
	for pause(loading, c.Every) {
		v, err := sample(ctx, l.stage)
		if ctx.Err() != nil {
			break // what there is is judged
		}
		if err != nil {
			return nil, nil, err
		}
		at, values = append(at, time.Since(began)), append(values, v)
		if len(at)%6 == 0 {
			fmt.Fprintf(c.Out, "%s: %s\n", at[len(at)-1].Round(time.Second), l.so())
		}
	}
	if len(at) < 8 {
		return nil, nil, fmt.Errorf("%d samples are too few to judge by", len(at))
	}
	return at, values, nil
}

func (l *load) so() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return counted(l.counts)
}

func counted(counts map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[k], k))
	}
	return strings.Join(out, ", ")
}

func (r *Report) judge(at []time.Duration, values []map[string]float64) error {
	from := int(warmUp * float64(len(at)))
	at, values = at[from:], values[from:]
	r.Window, r.Points = at[len(at)-1]-at[0], len(at)
	for _, m := range measures {
		var of []float64
		for _, v := range values {
			of = append(of, v[m.name])
		}
		line, err := Fit(at, of)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, Row{m.name, line, m.bound, m.bound == "" && line.Grows(r.Window, m.floor)})
	}
	return nil
}

// Flat says whether nothing grew and every answer was whole or typed.
func (r *Report) Flat() bool {
	return len(r.Wrong) == 0 && !slices.ContainsFunc(r.Rows, func(x Row) bool { return x.Grows })
}

// Print writes the report as a table.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "%s, %s\nlines through %d samples of the last %s; tolerance: a rise of %.0f %% of the mean, twice the standard error taken off\n\n",
		r.Took.Round(time.Second), counted(r.Counts), r.Points, r.Window.Round(time.Second), 100*share)
	fmt.Fprintln(out, "| measure | mean | rise over the window | ± | |\n|---|---|---|---|---|")
	for _, x := range r.Rows {
		rise, _ := x.Line.Rise(r.Window)
		word := "flat"
		switch {
		case x.Bound != "":
			word = "not judged: " + x.Bound
		case x.Grows:
			word = "GROWS"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", x.Name, number(x.Name, x.Line.Mean), number(x.Name, rise), number(x.Name, 2*x.Line.Error*r.Window.Seconds()), word)
	}
	for _, err := range r.Wrong {
		fmt.Fprintln(out, "wrong:", err)
	}
}

func number(name string, v float64) string {
	if strings.HasPrefix(name, "RSS") || strings.HasPrefix(name, "heap") || name == "registered bytes" {
		return fmt.Sprintf("%.1f MiB", v/mib)
	}
	return fmt.Sprintf("%.1f", v)
}
