// vllmbench prints what a handoff of real vLLM engines costs by our connector and
// by NIXL, in one run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/vllmbench"
)

func main() {
	c := vllmbench.Default()
	cmd := &cobra.Command{Use: "vllmbench", Short: "Measure handoffs of real vLLM engines by our connector beside NIXL",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := cmd.Flags()
	f.IntVar(&c.Rounds, "rounds", c.Rounds, "of each way, in turns")
	f.IntVar(&c.Requests, "requests", c.Requests, "of a way in a round")
	f.IntSliceVar(&c.Prompts, "prompts", c.Prompts, "lengths, in sentences of some 25 tokens")
	f.IntVar(&c.Tokens, "tokens", c.Tokens, "of an answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := vllmbench.Run(cmd.Context(), c)
		if r != nil {
			r.Print(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		if len(r.Missed()) > 0 {
			return errors.New("a must does not hold")
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vllmbench:", err)
		os.Exit(1)
	}
}
