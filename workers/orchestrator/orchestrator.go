package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/mover"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workflows"
)

// Orchestrator is one process's worker, streams and head starts.
type Orchestrator struct {
	cfg         Config
	incarnation handoff.Incarnation // of this process as a reader
	log         *slog.Logger
	temporal    client.Client
	worker      worker.Worker
	movers      *mover.Dialer
	steps       *activities.Steps
	bodies      *bodies
	fleet       *fleet
	hub         *hub
	metrics     *metrics

	life context.Context // of everything in the background
	end  context.CancelFunc
	wg   sync.WaitGroup
}

var _ Front = (*Orchestrator)(nil)

// New connects, registers the workflow and its activities and starts working.
// The worker serves as soon as New returns; Close ends it.
func New(ctx context.Context, cfg Config) (*Orchestrator, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	o := &Orchestrator{cfg: cfg, log: cfg.Log, movers: &mover.Dialer{}, hub: newHub(cfg.InFlight), metrics: newMetrics(cfg.Metrics)}
	var err error
	if o.incarnation, err = newIncarnation(); err != nil {
		return nil, err
	}
	if o.temporal, err = dialTemporal(ctx, cfg); err != nil {
		return nil, err
	}
	o.life, o.end = context.WithCancel(context.Background())
	o.bodies = newBodies(cfg.Bodies, cfg.InFlight)
	o.fleet = newFleet(o)
	o.steps = &activities.Steps{Ledger: cfg.Ledger, Engines: cfg.Engines, Movers: o.movers, Readers: readers{o}, Placer: o.fleet,
		Bodies: o.bodies, Attempts: activities.NewAttempts(2 * cfg.InFlight), Observer: o.metrics, Log: o.log,
		SerialBelow: cfg.SerialBelow, Local: o.local}
	o.worker = worker.New(o.temporal, cfg.Temporal.TaskQueue, worker.Options{
		MaxConcurrentWorkflowTaskExecutionSize:  cfg.InFlight,
		MaxConcurrentLocalActivityExecutionSize: 4 * cfg.InFlight,
		MaxConcurrentActivityExecutionSize:      2 * cfg.InFlight,
		StickyScheduleToStartTimeout:            500 * time.Millisecond, // a dead worker's task goes to another soon
		WorkerStopTimeout:                       10 * time.Second,
	})
	o.worker.RegisterWorkflowWithOptions(workflows.Handoff, workflow.RegisterOptions{Name: steps.Workflow})
	o.steps.Register(o.worker)
	if err := o.worker.Start(); err != nil {
		o.end()
		o.temporal.Close()
		return nil, handoff.Errorf(handoff.CodeUnavailable, "worker: %s", err.Error())
	}
	o.background(func(ctx context.Context) { o.steps.RenewLeases(ctx, cfg.Lease) })
	o.background(o.fleet.run)
	o.background(o.sweep)
	return o, nil
}

func dialTemporal(ctx context.Context, cfg Config) (client.Client, error) {
	opts := client.Options{HostPort: cfg.Temporal.HostPort, Namespace: cfg.Temporal.Namespace, Logger: log.NewStructuredLogger(cfg.Log)}
	opts.ConnectionOptions.TLS = cfg.Temporal.TLS
	if cfg.Temporal.APIKey != "" {
		opts.Credentials = client.NewAPIKeyStaticCredentials(cfg.Temporal.APIKey)
	}
	c, err := client.DialContext(ctx, opts)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "temporal at %s: %s", cfg.Temporal.HostPort, err.Error())
	}
	return c, nil
}

// background runs fn until Close; fn must end with its context.
func (o *Orchestrator) background(fn func(context.Context)) {
	o.wg.Go(func() { fn(o.life) })
}

func (o *Orchestrator) sweep(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			o.hub.sweep(now)
			o.steps.Attempts.Sweep(o.cfg.Deadline + 2*o.cfg.Lease)
			o.metrics.live.Set(float64(len(o.hub.live())))
		}
	}
}

// over is called when a stream has its terminal event: it is counted, and what
// the client wrote is dropped.
func (o *Orchestrator) over(s *stream, outcome string) {
	o.metrics.ended(s, outcome)
	o.bodies.drop(s.input().Plan.Attempt.Handoff)
}

// Drain waits until the streams that are open here have ended, or ctx does.
func (o *Orchestrator) Drain(ctx context.Context) error {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for len(o.hub.live()) > 0 {
		select {
		case <-ctx.Done():
			return handoff.Errorf(handoff.CodeDeadline, "%d streams are still open", len(o.hub.live()))
		case <-t.C:
		}
	}
	return nil
}

// Close stops the worker and everything in the background. Streams that are
// still open end with a typed error; their workflows go on elsewhere.
func (o *Orchestrator) Close() error {
	o.worker.Stop()
	for _, s := range o.hub.live() {
		s.fail(handoff.Errorf(handoff.CodeUnavailable, "this gateway is shutting down"))
	}
	o.end()
	o.wg.Wait()
	o.temporal.Close()
	return o.movers.Close()
}

// Incarnation is this process's life as a reader.
func (o *Orchestrator) Incarnation() handoff.Incarnation { return o.incarnation }

// newIncarnation is random, not counted: a gateway keeps nothing on disk, and
// all that matters is that two lives never share one.
func newIncarnation() (handoff.Incarnation, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, handoff.Errorf(handoff.CodeUnavailable, "random source: %v", err)
	}
	return handoff.Incarnation(binary.LittleEndian.Uint64(b[:])>>1 | 1), nil
}
