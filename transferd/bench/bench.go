// Package bench measures this host's lanes beside their limits, all in one run:
// every row is measured once a round, so that a loud minute is loud for all of
// them. CPU seconds count before GB/s: they hold still on a shared machine.
package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Config of a run.
type Config struct {
	Bytes  uint64   // moved by one sample
	Tables []string // names of block tables
	Rounds int      // samples of each row
	Pairs  int      // samples of the two rows of a claim, one straight after the other
	Only   string   // rows whose name has it; empty: all
	Dir    string   // for the daemons' folders
	Python string   // with the peers' wheels; absent: their rows are skipped
	Absent []string // what this host or build lacks, with the reason: said before the rows
	Out    io.Writer
}

// row is one way to move a table's bytes.
type row struct {
	name string
	run  func(ctx context.Context) (sample, error)
	// one moves one 64 KiB block many times and gives the median; nil: not measured.
	one func(ctx context.Context) (sample, error)
}

// sample is one measurement.
type sample struct {
	bytes uint64
	wire  time.Duration // from the first byte asked for to the last one landed
	cpu   time.Duration // of both ends
	setup time.Duration // everything else of the handoff
	// gather and scatter are spent, while wire runs, copying pieces together that
	// cannot be sent from where they lie, and apart that could not be read into place.
	gather, scatter time.Duration
	tail            time.Duration // of many small ones: the 99th percentile of wire
}

func (s sample) gbps() float64     { return float64(s.bytes) / 1e9 / s.wire.Seconds() }
func (s sample) cpuPerGB() float64 { return s.cpu.Seconds() / (float64(s.bytes) / 1e9) }

// Run measures and prints one table of rows for each table of blocks.
func Run(ctx context.Context, cfg Config) (err error) {
	fmt.Fprintln(cfg.Out, machine())
	for _, a := range cfg.Absent {
		fmt.Fprintln(cfg.Out, "absent  ", a)
	}
	for _, name := range cfg.Tables {
		shape, err := table(name, cfg.Bytes)
		if err != nil {
			return err
		}
		if err := cfg.table(ctx, name, shape); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (cfg Config) table(ctx context.Context, name string, shape handoff.Shape) (err error) {
	r, err := newRig(ctx, cfg.Dir, shape)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.close(); err == nil {
			err = cerr
		}
	}()
	var rows []row
	for _, candidate := range append(r.rows(name), r.peers(ctx, cfg)...) {
		if strings.Contains(candidate.name, cfg.Only) || candidate.name == copyRow {
			rows = append(rows, candidate)
		}
	}
	results, err := measure(ctx, rows, cfg.Rounds)
	if err != nil {
		return err
	}
	verdicts, err := cfg.judge(ctx, name, rows, results)
	if err != nil {
		return err
	}
	cfg.print(name, r, rows, results)
	if name == "64KiB" {
		if err := cfg.single(ctx, rows); err != nil {
			return err
		}
	}
	for _, line := range append(r.skipped, verdicts...) {
		fmt.Fprintf(cfg.Out, "  %s\n", line)
	}
	return nil
}

// On a loud machine there are fewer samples rather than a longer run.
const (
	roundsTime = 25 * time.Second // after which no other round of all rows begins
	pairsTime  = 15 * time.Second // nor another pair of a claim's rows, if there are
	pairsFew   = 5                // that many
)

// measure runs every row once a round.
func measure(ctx context.Context, rows []row, rounds int) (map[string]result, error) {
	results := map[string]result{}
	began := time.Now()
	for round := range rounds + 1 {
		if round > 1 && time.Since(began) > roundsTime {
			break
		}
		for _, row := range rows {
			s, err := row.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", row.name, err)
			}
			if round > 0 { // the first one touches pages and dials
				results[row.name] = append(results[row.name], s)
			}
		}
	}
	return results, nil
}

// print shows the rows beside the scattered copy, each by the medians of its samples.
func (cfg Config) print(name string, r *rig, rows []row, results map[string]result) {
	fmt.Fprintf(cfg.Out, "\n%s: %.0f MiB of KV in %s\n", name, float64(r.shape.Bytes())/(1<<20), r.fragmentation())
	fmt.Fprintf(cfg.Out, "  %-38s %9s %7s %9s %7s %9s %8s %8s %9s %10s %8s\n", "", "GB/s best", "median", "CPU-s/GB", "x copy", "setup ms", "wire ms", "p99 ms", "gather ms", "scatter ms", "samples")
	base := median(values(results[copyRow], sample.cpuPerGB))
	for _, row := range rows {
		s := results[row.name]
		of := func(f func(sample) time.Duration) []float64 {
			return values(s, func(s sample) float64 { return float64(f(s).Microseconds()) / 1e3 })
		}
		wire := of(func(s sample) time.Duration { return s.wire })
		cpu := median(values(s, sample.cpuPerGB))
		fmt.Fprintf(cfg.Out, "  %-38s %9.2f %7.2f %9.3f %7.2f %9.2f %8.2f %8.2f %9.2f %10.2f %8d\n", row.name, slices.Max(values(s, sample.gbps)), median(values(s, sample.gbps)),
			cpu, cpu/base, median(of(func(s sample) time.Duration { return s.setup })), median(wire), quantile(wire, 99),
			median(of(func(s sample) time.Duration { return s.gather })), median(of(func(s sample) time.Duration { return s.scatter })), len(s))
	}
}

// single measures one 64 KiB block, from the asking to its landing, beside what TCP and
// the waking of threads cost by themselves.
func (cfg Config) single(ctx context.Context, rows []row) error {
	rows = append(slices.Clone(rows),
		row{name: "bare exchange over tcp", one: func(context.Context) (sample, error) { return exchange(0) }},
		row{name: "the same, threads asleep before", one: func(context.Context) (sample, error) { return exchange(exchangeRest) }})
	for _, row := range rows {
		if row.one == nil {
			continue
		}
		s, err := row.one(ctx)
		if err != nil {
			return fmt.Errorf("one block of %s: %w", row.name, err)
		}
		tail := ""
		if s.tail > 0 {
			tail = fmt.Sprintf(", p99 %.0f us", float64(s.tail.Nanoseconds())/1e3)
		}
		fmt.Fprintf(cfg.Out, "  one 64 KiB block, %-34s p50 %.1f us%s\n", row.name, float64(s.wire.Nanoseconds())/1e3, tail)
		if row.name == tcpRow {
			fmt.Fprintf(cfg.Out, "  %-8s %-48s %-14s\n", "stretch", fmt.Sprint("one block over tcp in at most ", oneBlock), verdict(s.wire <= oneBlock))
		}
	}
	return nil
}

func values(s []sample, f func(sample) float64) []float64 {
	out := make([]float64, len(s))
	for i := range s {
		out[i] = f(s[i])
	}
	return out
}

func median(v []float64) float64 { return quantile(v, 50) }

func quantile(v []float64, percent int) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[min(len(v)*percent/100, len(v)-1)]
}

// processor is the CPU time of this process, in which both ends run.
func processor() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
