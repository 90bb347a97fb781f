// histories records, from real processes, the history of every way in which a
// handoff can end, for the replay tests of workflows.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/fleet"
)

func main() {
	var into string
	cmd := &cobra.Command{Use: "histories", Short: "Record the history of every outcome, for replay", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true}
	cmd.Flags().StringVar(&into, "into", filepath.Join("workflows", "testdata", "histories", "dev"), "folder of the histories")
	only := cmd.Flags().StringSlice("only", nil, "outcomes by name; empty: all")
	cmd.RunE = func(*cobra.Command, []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return record(ctx, into, *only)
	}
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "histories:", err)
		os.Exit(1)
	}
}

// record runs every outcome on a fleet of its kind.
func record(ctx context.Context, into string, only []string) error {
	p, err := fleet.Build(ctx, true)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	var failed []error
	for _, kind := range []string{"request", "handoff"} {
		if wanted := chosen(kind, only); len(wanted) > 0 {
			failed = append(failed, recordKind(ctx, p, kind, into, wanted))
		}
	}
	return errors.Join(failed...)
}

// chosen are the outcomes of a kind of fleet, all or those named.
func chosen(kind string, only []string) (out []outcome) {
	for _, o := range outcomes {
		if o.record == kind && (len(only) == 0 || slices.Contains(only, o.name)) {
			out = append(out, o)
		}
	}
	return out
}

func recordKind(ctx context.Context, p fleet.Programs, kind, into string, wanted []outcome) (err error) {
	dir, err := os.MkdirTemp("", "surehand-histories-")
	if err != nil {
		return err
	}
	f, err := fleet.Start(ctx, p, dir, fleet.Options{PrefillRate: rate, Step: step, Chunk: chunk, Lease: lease, Record: kind})
	defer func() { err = errors.Join(err, f.Stop(), os.RemoveAll(dir)) }()
	if err != nil {
		return err
	}
	r := newRecorder(f)
	defer r.close()
	var failed []error
	for _, o := range wanted {
		path := filepath.Join(into, o.name+".json")
		told, err := r.run(ctx, o, path)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", o.name, err))
			slog.Error("not recorded", "outcome", o.name, "error", err.Error())
			continue
		}
		slog.Info("recorded", "outcome", o.name, "ended", told, "into", path)
	}
	return errors.Join(failed...)
}
