// vllmenv installs the real vLLM that the proof and the demos run, into the cache.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/workers/vllmenv"
)

func main() {
	cmd := &cobra.Command{Use: "vllmenv", Short: "Install vLLM for CPUs with NIXL and a tiny model into the cache", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true}
	cache, err := os.UserCacheDir()
	dir := cmd.Flags().String("dir", vllmenv.DefaultDir(cache), "folder to install into")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		if *dir == "" {
			return err
		}
		e, err := vllmenv.Install(c.Context(), *dir, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(e.Dir)
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vllmenv:", err)
		os.Exit(1)
	}
}
