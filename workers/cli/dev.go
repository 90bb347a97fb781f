package cli

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/workers/dev"
	"github.com/surehand/surehand/workers/refengine"
)

const devLong = `A whole Surehand on this machine: Temporal with its UI, a store, prefill and
decode engines each with its own transferd, and a gateway with a worker. Each is
a process of its own: kill -9 any of them and look at what happens. What dies is
restarted on the same ports.

Binaries that are not built yet are built from this checkout; Temporal takes
several minutes the first time. Ctrl-C drains, a second one kills. Histories
stay in the data directory for the next run.`

const devExamples = `  surehand dev
  surehand dev --prefill 1 --decode 3 --compute synthetic --prefill-tok-s 8000 --step-ms 10
  surehand dev --engine llamacpp
  surehand dev --engine vllm --prefill 1 --decode 2
  surehand dev --temporal 127.0.0.1:7233 --redis redis://127.0.0.1:6379

  # for a program: one line of JSON when ready, one for each restart
  surehand dev --json --data "$(mktemp -d)" --listen 127.0.0.1:0 --grpc 127.0.0.1:0`

type devFlags struct {
	dev.Config
	temporal            temporalFlags
	compute             string
	blocks              int
	prefillTokS, stepMs float64
	record              string
	traces              traceFlags
}

func newDev() *cobra.Command {
	var d devFlags
	c := &cobra.Command{
		Use: "dev", Short: "Everything on this machine, in one command", Long: devLong, Example: devExamples,
		GroupID: groupProcess, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return d.run(c) },
	}
	f := c.Flags()
	f.StringVar(&d.Data, "data", ".surehand", "directory for histories, logs and incarnations")
	f.StringVar(&d.Listen, "listen", "127.0.0.1:8080", "HTTP address; a taken port gives the next free one")
	f.StringVar(&d.GRPC, "grpc", "127.0.0.1:8081", "gRPC address")
	f.StringVar(&d.UI, "ui", "127.0.0.1:8233", "address of Temporal's UI")
	f.StringVar(&d.TemporalListen, "temporal-listen", "127.0.0.1:7233", "address of the embedded Temporal")
	f.StringVar(&d.temporal.address, "temporal", "", "a real Temporal at host:port (default: the embedded one)")
	d.temporal.flags(c)
	f.StringVar(&d.Redis, "redis", "", "URL of a real Redis (default: the embedded store)")
	f.IntVar(&d.Prefill, "prefill", 2, "prefill engines; 1 of vllm, which is larger, unless given")
	f.IntVar(&d.Decode, "decode", 2, "decode engines; the same")
	f.StringVar(&d.compute, "compute", refengine.ComputeModel, "of the engines: model or synthetic")
	f.StringVar(&d.Engine, "engine", dev.EngineReference, "kind of the engines: "+dev.Kinds())
	f.StringVar(&d.Model, "model", "", "name of the model; for llamacpp one that can be installed, for vllm that one, tiny (random weights) or a folder of weights")
	f.IntVar(&d.blocks, "blocks", 0, "KV blocks of each engine (default 1024)")
	f.Float64Var(&d.prefillTokS, "prefill-tok-s", 0, "pace of each engine's prefill (default: as fast as it is)")
	f.Float64Var(&d.stepMs, "step-ms", 0, "of one decode step (default: as fast as it is)")
	f.StringVar(&d.record, "record", "request", "what a history records: request or handoff")
	d.traces.flags(c)
	f.BoolVar(&d.JSON, "json", false, "say ready, and every change after, as a line of JSON on stdout")
	return c
}

func (d *devFlags) run(c *cobra.Command) (err error) {
	if d.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find a place for built binaries: %w", err)
	}
	d.Cache = filepath.Join(cache, "surehand", "bin")
	if d.Sources, err = os.Getwd(); err != nil {
		return err
	}
	if d.Engine == dev.EngineVLLM {
		for flag, n := range map[string]*int{"prefill": &d.Prefill, "decode": &d.Decode} {
			if !c.Flag(flag).Changed {
				*n = 1
			}
		}
	}
	d.Temporal = d.temporal.address
	if d.Sealed = d.temporal.payloadKeys != ""; d.Sealed {
		if d.temporal.payloadKeys, err = filepath.Abs(d.temporal.payloadKeys); err != nil {
			return err
		}
	}
	d.GatewayArgs, d.GatewayEnv = d.temporal.args()
	d.GatewayArgs = append(d.GatewayArgs, "--record", d.record)
	if d.Env, err = d.traces.env(); err != nil {
		return err
	}
	d.OwnArgs, d.EngineArgs = d.ownArgs(), d.engineArgs()
	for _, name := range []string{"log-level", flagConfig} { // of ours, for the children too
		if f := c.Flag(name); f.Changed {
			d.GatewayArgs = append(d.GatewayArgs, "--"+name, f.Value.String())
			d.EngineArgs = append(d.EngineArgs, "--"+name, f.Value.String())
		}
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	return dev.Run(c.Context(), d.Config, dev.Streams{Out: c.OutOrStdout(), Progress: c.ErrOrStderr()}, signals)
}

// engineArgs are for engines of every kind.
func (d *devFlags) engineArgs() []string {
	if d.blocks != 0 {
		return []string{"--blocks", strconv.Itoa(d.blocks)}
	}
	return nil
}

// ownArgs are for those of our own.
func (d *devFlags) ownArgs() []string {
	args := []string{"--compute", d.compute}
	if d.Model != "" {
		args = append(args, "--model", d.Model)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"--prefill-tok-s", d.prefillTokS}, {"--step-ms", d.stepMs}} {
		if f.value != 0 {
			args = append(args, f.name, strconv.FormatFloat(f.value, 'g', -1, 64))
		}
	}
	return args
}
