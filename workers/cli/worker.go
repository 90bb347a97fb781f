package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/workers/telemetry"
)

const workerLong = `A Temporal worker without a gateway: it takes over the handoffs of gateways that
died, and runs fleet workflows. It reads no streams.`

func newWorker() *cobra.Command {
	var b backends
	var metrics string
	var traces traceFlags
	c := &cobra.Command{
		Use: "worker", Short: "Temporal worker without a gateway", Long: workerLong, GroupID: groupProcess, Args: cobra.NoArgs,
		Example: "  surehand worker --temporal 127.0.0.1:7233 --redis redis://127.0.0.1:6379 --metrics 127.0.0.1:9464",
	}
	c.Flags().StringVar(&metrics, "metrics", "", metricsUsage)
	b.flags(c)
	traces.flags(c)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		ctx, stop := untilStopped(c)
		defer stop()
		log, err := logger(c, "worker")
		if err != nil {
			return err
		}
		untraced, err := traces.start(ctx, "worker", false, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, untraced()) }()
		spendMemory()
		registry := telemetry.Registry("worker")
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		o, err := b.open(opening, "", log, registry)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.close()) }()
		if metrics != "" {
			server, err := watched(metrics, identity.Files{Cert: b.peerCert, Key: b.peerKey, CA: b.peerCA}, registry, o.Ready)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, server.Close()) }()
		}
		if err := sayReady(c.OutOrStdout(), map[string]string{"metrics": metrics}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	return c
}
