// soak keeps a whole fleet under load and faults, and tells what grows.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/soak"
)

var errNotFlat = errors.New("something grew, or an answer was neither whole nor typed")

func main() {
	c := soak.Config{Out: os.Stderr}
	var minutes float64
	cmd := &cobra.Command{Use: "soak", Short: "Keep a fleet under mixed traffic and gentle faults; nothing may grow",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := cmd.Flags()
	f.Float64Var(&minutes, "minutes", 30, "how long")
	f.IntVar(&c.Clients, "clients", 4, "that ask one thing after the other")
	f.DurationVar(&c.Every, "every", 5*time.Second, "between two samples")
	f.DurationVar(&c.Faults, "faults", 20*time.Second, "between two stops of a process, about; 0: none")
	f.Uint64Var(&c.Seed, "seed", 1, "of what clients ask and who is stopped")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		c.For = time.Duration(minutes * float64(time.Minute))
		p, err := fleet.Build(ctx, true)
		if err != nil {
			return err
		}
		r, err := soak.Run(ctx, p, c)
		if err != nil {
			return err
		}
		r.Print(cmd.OutOrStdout())
		if !r.Flat() {
			return errNotFlat
		}
		return nil
	}
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
