package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/redisledger"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine"
	"github.com/surehand/surehand/workers/telemetry"
)

const engineLong = `The reference engine: a small language model with real state (paged KV, a
sliding-window ring, n-gram history, sampler), or --compute synthetic, whose
state is a function of handoff, epoch and position and whose pace is set by
--prefill-tok-s and --step-ms.

It attaches to the transferd beside it and registers itself in the store.`

const engineExamples = `  transferd --node p1 --data /tmp/p1 --engine-socket /tmp/p1.sock --control 127.0.0.1:9001 --peer 127.0.0.1:9002
  surehand engine --role prefill --id p1 --listen 127.0.0.1:9000 --transferd-socket /tmp/p1.sock \
      --transferd-control 127.0.0.1:9001 --redis redis://127.0.0.1:6379

  # for load: 8000 prompt tokens a second, a step of 12 ms
  surehand engine --compute synthetic --prefill-tok-s 8000 --step-ms 12 …`

// A registration stands this long after the last heartbeat.
const (
	registrationTTL   = 3 * time.Second
	registrationEvery = 500 * time.Millisecond
	attachTimeout     = 30 * time.Second
)

// Work is what an engine of another program runs on, in the same shell.
type Work struct {
	Short, Long, Example string
	Flags                func(*pflag.FlagSet)
	// Open sets the work, the name of its model and what is zero of the sizes.
	Open func(*refengine.Config) (io.Closer, error)
}

type engineFlags struct {
	refengine.Config
	work                     *Work // nil: our own
	id, role, redis, metrics string
	redisPlaintext           bool
	stepMs                   float64
	traces                   traceFlags
	secure                   engineTLS
}

func newEngine(w *Work) *cobra.Command {
	e := engineFlags{work: w}
	c := &cobra.Command{
		Use: "engine", Short: "Reference engine, for prefill or decode", Long: engineLong, Example: engineExamples,
		GroupID: groupProcess, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return e.run(c) },
	}
	f := c.Flags()
	if w != nil {
		c.Short, c.Long, c.Example = w.Short, w.Long, w.Example
		w.Flags(f)
	} else {
		e.ownFlags(f)
	}
	f.StringVar(&e.role, "role", "", "prefill, decode or both")
	f.StringVar(&e.id, "id", "", "name of the engine, [a-z0-9._-]")
	f.StringVar(&e.Listen, "listen", "127.0.0.1:0", "gRPC address")
	f.StringVar(&e.TransferdSocket, "transferd-socket", "", "engine socket of the transferd beside it")
	f.StringVar(&e.Control, "transferd-control", "", "control address of that transferd, as others reach it")
	f.StringVar(&e.redis, "redis", "redis://127.0.0.1:6379", "Redis URL of the registry")
	f.BoolVar(&e.redisPlaintext, "redis-plaintext", false, "permit clear text to a Redis on another host")
	f.StringVar(&e.Model, "model", "", "name of the model (default: that of what the engine runs on)")
	f.IntVar(&e.Blocks, "blocks", 0, "KV blocks (default 1024)")
	f.IntVar(&e.Slots, "slots", 0, "attempts that hold memory at once (default 128)")
	f.IntVar(&e.MaxRunning, "max-running", 0, "prefills, and decodes, that share the device (default 64)")
	f.IntVar(&e.ChunkTokens, "chunk-tokens", 0, "prompt tokens of one step (default 64; synthetic 512)")
	f.IntVar(&e.SerialBelow, "serial-below", handoff.OverlapTokens, "prompts of fewer tokens are announced once they are computed, not layer by layer (task bench:overlap measures it)")
	f.BoolVar(&e.Poison, "poison", false, "fill freed memory with NaN instead of zeros")
	f.DurationVar(&e.Grace, "grace", 0, "for running attempts, after SIGTERM (default 5s)")
	f.StringVar(&e.metrics, "metrics", "", metricsUsage)
	e.secure.flags(f)
	e.traces.flags(c)
	for _, name := range []string{"role", "id", "transferd-socket", "transferd-control"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // a name that is no flag
		}
	}
	return c
}

// ownFlags are those of our own kinds of compute.
func (e *engineFlags) ownFlags(f *pflag.FlagSet) {
	f.StringVar(&e.Compute, "compute", refengine.ComputeModel, "model or synthetic")
	f.IntVar(&e.Synthetic.Layers, "synthetic-layers", 0, "layers of the synthetic state (default 2)")
	f.IntVar(&e.Synthetic.BlockTokens, "synthetic-block-tokens", 0, "tokens of one KV block of it, a divisor of 64; P and D may differ (default 16)")
	f.IntVar(&e.Synthetic.TokenBytes, "synthetic-token-bytes", 0, "bytes of one token in one layer of it (default 16)")
	f.Float64Var(&e.Profile.PrefillTokensPerSecond, "prefill-tok-s", 0, "pace of the prefill (default: as fast as it is)")
	f.Float64Var(&e.stepMs, "step-ms", 0, "of one decode step of the whole batch (default: as fast as it is)")
}

var engineRoles = map[string]engine.Role{"prefill": engine.RolePrefill, "decode": engine.RoleDecode, "both": engine.RoleBoth}

func (e *engineFlags) run(c *cobra.Command) (err error) {
	ctx, stop := untilStopped(c)
	defer stop()
	if e.Log, err = logger(c, "engine-"+e.id); err != nil {
		return err
	}
	untraced, err := e.traces.start(ctx, "engine", false, e.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, untraced()) }()
	var known bool
	if e.Role, known = engineRoles[e.role]; !known {
		return fmt.Errorf("--role %q is none of prefill, decode, both", e.role)
	}
	e.ID = handoff.EngineID(e.id)
	if e.TLS, err = e.secure.config(e.Listen); err != nil {
		return err
	}
	e.Profile.StepInterval = time.Duration(e.stepMs * float64(time.Millisecond))
	registry, err := redisledger.Open(redisledger.Options{URL: e.redis, Plaintext: e.redisPlaintext})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()

	if e.work != nil {
		var opened io.Closer
		if opened, err = e.work.Open(&e.Config); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, opened.Close()) }() // after the engine
	}
	attaching, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	running, err := refengine.New(attaching, e.Config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	metrics := telemetry.Registry("engine")
	if err := metrics.Register(engineMetrics{running}); err != nil {
		return err
	}
	if e.metrics != "" {
		server, err := watched(e.metrics, e.secure.files, metrics, attached(running))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
	}
	return serveEngine(ctx, running, &announcer{registry: registry, engine: running, advertise: e.secure.advertise, log: e.Log}, c.OutOrStdout())
}

// engineProcess is an engine of any kind that this process is, or stands for.
type engineProcess interface {
	Address() string
	Description() *enginev1.Description
	Attached() bool
	Changes() <-chan struct{}
	Serve(context.Context) error
}

// serveEngine is registered for as long as it serves.
func serveEngine(ctx context.Context, running engineProcess, a *announcer, out io.Writer) error {
	announcing, quit := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.run(announcing) }()
	err := sayReady(out, map[string]string{"grpc": running.Address()})
	if err == nil {
		err = running.Serve(ctx)
	}
	quit()
	return errors.Join(err, <-done)
}

func attached(e engineProcess) telemetry.Check {
	return func(context.Context) error {
		if !e.Attached() {
			return errors.New("no transferd is attached")
		}
		return nil
	}
}

// announcer keeps the engine's registration alive. Each heartbeat is the whole
// registration, so an emptied store has it back within one.
type announcer struct {
	registry ledger.Registry
	engine   interface {
		Description() *enginev1.Description
		Attached() bool
		Changes() <-chan struct{}
	}
	advertise string // empty: the engine's own address
	log       *slog.Logger
}

func (a *announcer) registration() ledger.Engine {
	r := registration(a.engine.Description(), a.engine.Attached())
	r.Address = cmp.Or(a.advertise, r.Address)
	return r
}

// run registers until ctx ends, and then takes the registration back.
func (a *announcer) run(ctx context.Context) error {
	tick := time.NewTicker(registrationEvery)
	defer tick.Stop()
	reached := true
	for {
		d := a.registration()
		err := a.registry.Register(ctx, d, registrationTTL)
		switch {
		case ctx.Err() != nil:
			return a.leave(d)
		case handoff.CodeOf(err) == handoff.CodeStaleIncarnation:
			return fmt.Errorf("another process of engine %s has taken its place: %w", d.ID, err)
		case (err == nil) != reached: // said once, not at each heartbeat
			reached = err == nil
			a.log.Warn("registration", "reached", reached, "code", handoff.CodeOf(err).String())
		}
		select {
		case <-tick.C:
		case <-a.engine.Changes(): // told at once: plans for another life of the transferd are refused
		case <-ctx.Done():
			return a.leave(d)
		}
	}
}

// leave runs when the command's own context is over already.
func (a *announcer) leave(d ledger.Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), redisledger.CallTimeout)
	defer cancel()
	if err := a.registry.Deregister(ctx, d.ID, d.ProcessIncarnation); err != nil {
		// The registration ends by itself in a moment.
		a.log.Warn("deregistration", "code", handoff.CodeOf(err).String())
	}
	return nil
}

var registryRoles = map[enginev1.Role]ledger.Role{
	enginev1.Role_ROLE_PREFILL: ledger.RolePrefill, enginev1.Role_ROLE_DECODE: ledger.RoleDecode, enginev1.Role_ROLE_BOTH: ledger.RoleBoth,
}

// registration is a description as the registry keeps it. An engine without a
// transferd takes nothing new.
func registration(d *enginev1.Description, attached bool) ledger.Engine {
	return ledger.Engine{
		ID: handoff.EngineID(d.GetEngine()), Role: registryRoles[d.GetRole()], Model: d.GetModel(), Revision: d.GetRevision(), Layout: d.GetLayout(), Described: d.GetDescribed(),
		Node: handoff.NodeID(d.GetNode()), NodeIncarnation: handoff.Incarnation(d.GetNodeIncarnation()),
		ProcessIncarnation: handoff.Incarnation(d.GetProcessIncarnation()), Address: d.GetAddress(), Control: d.GetControlAddress(), Peer: d.GetPeerAddress(), PeerProtocol: d.GetPeerProtocol(),
		Blocks: d.GetBlocks(), BlockTokens: d.GetBlockTokens(), MaxTokens: d.GetMaxTokens(), PrefillTokensPerSecond: d.GetPrefillTokensPerSecond(),
		Tokenizes: d.GetTokenizes(), Resumes: d.GetResumes(),
		Cordoned: !attached, Load: &ledger.Load{BlocksFree: d.GetBlocksFree(), Running: d.GetRunning(), Waiting: d.GetWaiting()},
	}
}

// engineMetrics reads the engine's own description at each scrape.
type engineMetrics struct{ e engineProcess }

var engineGauges = []struct {
	desc  *prometheus.Desc
	value func(*enginev1.Description) float64
}{
	{gauge("surehand_engine_blocks", "KV blocks in all."), func(d *enginev1.Description) float64 { return float64(d.GetBlocks()) }},
	{gauge("surehand_engine_blocks_free", "KV blocks that a request could have."), func(d *enginev1.Description) float64 { return float64(d.GetBlocksFree()) }},
	{gauge("surehand_engine_running", "Prefills and decodes on the device."), func(d *enginev1.Description) float64 { return float64(d.GetRunning()) }},
	{gauge("surehand_engine_waiting", "Prefills and decodes that wait for it."), func(d *enginev1.Description) float64 { return float64(d.GetWaiting()) }},
	{gauge("surehand_engine_targets_held", "Attempts whose target holds memory."), func(d *enginev1.Description) float64 { return float64(d.GetTargetsHeld()) }},
	{gauge("surehand_engine_sources_held", "Attempts whose source holds memory."), func(d *enginev1.Description) float64 { return float64(d.GetSourcesHeld()) }},
}

var (
	attachedDesc = gauge("surehand_engine_transferd_attached", "1 when a transferd stands beside the engine.")
	brokenDesc   = prometheus.NewDesc("surehand_engine_decodes_broken_total", "Synthetic decodes that met a byte of somebody else.", nil, nil)
)

func gauge(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

func (m engineMetrics) Describe(c chan<- *prometheus.Desc) {
	for _, g := range engineGauges {
		c <- g.desc
	}
	c <- attachedDesc
	c <- brokenDesc
}

func (m engineMetrics) Collect(c chan<- prometheus.Metric) {
	d := m.e.Description()
	for _, g := range engineGauges {
		c <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(d))
	}
	on := 0.0
	if m.e.Attached() {
		on = 1
	}
	c <- prometheus.MustNewConstMetric(attachedDesc, prometheus.GaugeValue, on)
	if synthetic, ok := m.e.(interface{ BrokenDecodes() uint64 }); ok {
		c <- prometheus.MustNewConstMetric(brokenDesc, prometheus.CounterValue, float64(synthetic.BrokenDecodes()))
	}
}
