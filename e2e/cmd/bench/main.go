// bench prints what Surehand adds to the bare floor, in one run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/bench"
)

var errMust = errors.New("not every must holds")

func main() {
	c := bench.Default()
	c.Out = os.Stderr
	cmd := &cobra.Command{Use: "bench", Short: "Measure added time to first token, CPU and history writes beside the bare floor",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := cmd.Flags()
	f.IntSliceVar(&c.Clients, "clients", c.Clients, "closed loops of so many clients")
	f.IntVar(&c.Rounds, "rounds", c.Rounds, "of either side, in turns")
	f.IntVar(&c.Requests, "requests", c.Requests, "that a client sends in a round")
	f.DurationVar(&c.Prefill, "prefill", c.Prefill, "time of one prompt's prefill; 0: as fast as it is")
	f.IntVar(&c.PromptTokens, "prompt", c.PromptTokens, "prompt tokens")
	f.IntVar(&c.Tokens, "tokens", c.Tokens, "of an answer")
	f.DurationVar(&c.Step, "step", c.Step, "between two tokens of it")
	f.IntVar(&c.Engines, "engines", c.Engines, "of each role")
	f.StringVar(&c.Record, "record", c.Record, "what a history records: request or handoff")
	f.BoolVar(&c.AtOnce, "at-once", c.AtOnce, "all clients of a loop ask in the same moment, instead of beginning spread over the time of one answer")
	f.StringVar(&c.Profiles, "profiles", c.Profiles, "directory for CPU profiles of Temporal and the gateway under the largest loop")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		r, err := bench.Run(ctx, c)
		if err != nil {
			return err
		}
		r.Print(cmd.OutOrStdout())
		for _, m := range r.Musts() {
			if !m.Holds {
				return errMust
			}
		}
		return nil
	}
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
