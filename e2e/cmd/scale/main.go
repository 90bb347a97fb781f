// scale prints how many durable handoffs a second this machine makes, and what
// each costs, by store, history shards and gateways.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/scale"
)

var errMust = errors.New("not every must holds, or not every cell was measured")

func main() {
	c := scale.Default()
	c.Out = os.Stderr
	cmd := &cobra.Command{Use: "scale", Short: "Measure durable handoffs a second and their cost, by store, history shards and gateways",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := cmd.Flags()
	f.IntSliceVar(&c.Shards, "shards", c.Shards, "history shards on PostgreSQL, behind one gateway; 0: none")
	f.IntSliceVar(&c.Gateways, "gateways", c.Gateways, "replicas of gateway and worker, on PostgreSQL; 0: none")
	f.IntVar(&c.Clients, "clients", c.Clients, "of a closed loop")
	f.DurationVar(&c.Load, "load", c.Load, "length of one")
	f.IntVar(&c.Burst, "burst", c.Burst, "requests in one moment; 0: none")
	f.BoolVar(&c.SQLite, "sqlite", c.SQLite, "measure on SQLite too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		r, err := scale.Run(ctx, c)
		if r != nil {
			r.Print(cmd.OutOrStdout()) // what was measured, also when the rest was not
		}
		if err != nil {
			return err
		}
		for _, m := range r.Musts() {
			if !m.Holds {
				return errMust
			}
		}
		if len(r.Failed) > 0 {
			return errMust
		}
		return nil
	}
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}
