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
	Only   string   // rows whose name has it; empty: all
	Dir    string   // for the daemons' folders
	Out    io.Writer
}

// row is one way to move a table's bytes.
type row struct {
	name string
	run  func(ctx context.Context) (sample, error)
}

// sample is one measurement.
type sample struct {
	bytes uint64
	wire  time.Duration // from the first byte asked for to the last one landed
	cpu   time.Duration // of both ends
	setup time.Duration // everything else of the handoff
}

func (s sample) gbps() float64     { return float64(s.bytes) / 1e9 / s.wire.Seconds() }
func (s sample) cpuPerGB() float64 { return s.cpu.Seconds() / (float64(s.bytes) / 1e9) }

// Run measures and prints one table of rows for each table of blocks.
func Run(ctx context.Context, cfg Config) (err error) {
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
	for _, candidate := range r.rows() {
		if strings.Contains(candidate.name, cfg.Only) || candidate.name == copyRow {
			rows = append(rows, candidate)
		}
	}
	samples := make([][]sample, len(rows))
	for round := range cfg.Rounds + 1 {
		for i, row := range rows {
			s, err := row.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			if round > 0 { // the first one touches pages and dials
				samples[i] = append(samples[i], s)
			}
		}
	}
	fmt.Fprintf(cfg.Out, "\n%s: %d pieces, %.0f MiB, %d rounds\n", name, shape.Pieces(), float64(shape.Bytes())/(1<<20), cfg.Rounds)
	fmt.Fprintf(cfg.Out, "  %-26s %9s %9s %10s %10s %10s %9s\n", "", "GB/s best", "median", "CPU-s/GB", "x copy", "x copy CPU", "setup ms")
	base := samples[slices.IndexFunc(rows, func(r row) bool { return r.name == copyRow })]
	for i, row := range rows {
		print(cfg.Out, row.name, samples[i], base)
	}
	for _, skipped := range r.skipped {
		fmt.Fprintf(cfg.Out, "  %s\n", skipped)
	}
	return nil
}

func print(out io.Writer, name string, s, base []sample) {
	best := slices.Max(values(s, sample.gbps))
	cpu := median(values(s, sample.cpuPerGB))
	setup := median(values(s, func(s sample) float64 { return float64(s.setup.Microseconds()) / 1e3 }))
	// The ratio of time is taken within each round and of those the median.
	var ratios []float64
	for i := range s {
		ratios = append(ratios, base[i].gbps()/s[i].gbps())
	}
	fmt.Fprintf(out, "  %-26s %9.2f %9.2f %10.3f %10.2f %10.2f %9.2f\n", name, best, median(values(s, sample.gbps)), cpu,
		median(ratios), cpu/median(values(base, sample.cpuPerGB)), setup)
}

func values(s []sample, f func(sample) float64) []float64 {
	out := make([]float64, len(s))
	for i := range s {
		out[i] = f(s[i])
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// processor is the CPU time of this process, in which both ends run.
func processor() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
