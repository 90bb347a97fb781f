// stalekv shows stock vLLM answering from another prompt's KV, and Surehand not.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/stalekv"
)

func main() {
	cmd := &cobra.Command{Use: "stalekv", Short: "Let a lease lapse between prefill and decode, on stock vLLM and through Surehand",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	var o stalekv.Options
	cmd.Flags().BoolVar(&o.NoFence, "no-fence", false, "hide from Surehand what it fences by: the demo must then fail")
	logs := cmd.Flags().String("logs", "", "folder for the logs, kept; empty: none are")
	o.Progress = os.Stderr
	cmd.RunE = func(c *cobra.Command, _ []string) (err error) {
		dir := *logs
		if dir == "" {
			if dir, err = os.MkdirTemp("", "stalekv-"); err != nil {
				return err
			}
			defer os.RemoveAll(dir)
		}
		return stalekv.Run(c.Context(), dir, os.Stdout, o)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "stalekv:", err)
		os.Exit(1)
	}
}
