// peers prints what Surehand costs beside the routers whose place it takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/peers"
	"github.com/surehand/surehand/e2e/traffic"
)

// traceLooked is how many requests of a trace are read.
const traceLooked = 1000

func main() {
	c := peers.Default()
	c.Out = os.Stderr
	var quick bool
	var trace, plots string
	cmd := &cobra.Command{Use: "peers", Short: "Measure Surehand in a stateless router's place, beside such routers and the bare floor",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "each goal once, beside one router, in about three minutes; other flags that size a run are overruled")
	f.IntVar(&c.Rounds, "rounds", c.Rounds, "of each side, in turns")
	f.DurationVar(&c.Round, "round", c.Round, "length of one")
	f.StringSliceVar(&c.Routers, "routers", c.Routers, "other routers")
	f.IntSliceVar(&c.Clients, "clients", c.Clients, "closed loops against engines without latency")
	f.Float64SliceVar(&c.Rates, "rates", c.Rates, "Poisson arrivals a second")
	f.BoolVar(&c.Loads, "loads", c.Loads, "measure under loads")
	f.IntVar(&c.Streams, "streams", c.Streams, "held open at once, for the memory of one; 0: not measured")
	f.BoolVar(&c.Faults, "faults", c.Faults, "break things too")
	f.BoolVar(&c.Install, "install", c.Install, "get routers that are not there, by pip, into the cache")
	f.StringVar(&c.Args, "serve-flags", "", "further flags of surehand serve")
	f.StringVar(&c.Profile, "profiles", "", "directory for CPU profiles of ours")
	f.StringVar(&trace, "trace", "", "lengths and arrivals, in the form of the Azure traces of 2023 (default: drawn from that trace's quantiles)")
	f.StringVar(&plots, "plots", "peers", "directory for the pictures; empty: none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		var err error
		if c.Trace, err = load(trace); err != nil {
			return err
		}
		if quick {
			c = c.Quick()
		}
		return run(ctx, cmd, c, plots)
	}
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func load(path string) ([]traffic.Item, error) {
	if path == "" {
		return peers.Trim(traffic.Generated(1, traceLooked)), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	items, err := traffic.ReadAzure(file, traceLooked)
	return peers.Trim(items), errors.Join(err, file.Close())
}

func run(ctx context.Context, cmd *cobra.Command, c peers.Config, plots string) error {
	r, err := peers.Run(ctx, c)
	if err != nil {
		return err
	}
	r.Print(cmd.OutOrStdout())
	if plots != "" && c.Loads && len(c.Clients) > 0 {
		if err := os.MkdirAll(plots, 0o755); err != nil {
			return err
		}
		paths, err := r.Plots(plots)
		if err != nil {
			return err
		}
		for _, p := range paths {
			fmt.Fprintln(cmd.ErrOrStderr(), "picture:", p)
		}
	}
	if missed := r.Missed(); missed > 0 {
		return fmt.Errorf("%d musts do not hold", missed)
	}
	return nil
}
