package orchestrator

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdktemporal "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

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
	movers      mover.Directory
	closers     []func() error
	steps       *activities.Steps
	bodies      *bodies
	fleet       *fleet
	hub         *hub
	starts      *starts
	pulse       *pulse
	metrics     *metrics

	life    context.Context // of everything in the background
	end     context.CancelFunc
	records context.Context // of what must still be recorded when this process stops
	forget  context.CancelFunc
	mu      sync.Mutex // over wg's growing and its end
	stopped bool
	wg      sync.WaitGroup
}

var _ Front = (*Orchestrator)(nil)

// workflowPollers wait for workflow tasks. A task that finds none waiting goes
// through the server's store, which costs more than the pollers do.
const workflowPollers = 8

// temporalWindow is how many bytes the server may send ahead. Windows that grow
// have gRPC measure the way with a ping at every answer.
const temporalWindow = 8 << 20

// New connects, registers the workflow and its activities and starts working.
// The worker serves as soon as New returns; Close ends it.
func New(ctx context.Context, cfg Config) (*Orchestrator, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	beat := &pulse{}
	temporal, err := dialTemporal(ctx, cfg, beat)
	if err != nil {
		return nil, err
	}
	dialer := &mover.Dialer{TLS: cfg.Daemons, Silence: cfg.Silence}
	movers := cfg.Movers
	if movers == nil {
		movers = dialer
	}
	o, err := assemble(cfg, temporal, movers)
	if err != nil {
		temporal.Close()
		return nil, err
	}
	o.pulse, dialer.Node = beat, o.fleet.nodeAt
	o.closers = append(o.closers, dialer.Close)
	o.worker = worker.New(o.temporal, cfg.Temporal.TaskQueue, worker.Options{
		MaxConcurrentWorkflowTaskExecutionSize:  cfg.InFlight,
		MaxConcurrentLocalActivityExecutionSize: 4 * cfg.InFlight,
		MaxConcurrentActivityExecutionSize:      2 * cfg.InFlight,
		MaxConcurrentWorkflowTaskPollers:        workflowPollers,
		StickyScheduleToStartTimeout:            500 * time.Millisecond, // a dead worker's task goes to another soon
		WorkerStopTimeout:                       10 * time.Second,
		DeploymentOptions:                       cfg.Temporal.Version.options(),
	})
	o.worker.RegisterWorkflowWithOptions(workflows.Handoff, workflow.RegisterOptions{Name: steps.Workflow})
	o.steps.Register(o.worker)
	if err := o.worker.Start(); err != nil {
		o.worker = nil
		return nil, errors.Join(handoff.Errorf(handoff.CodeUnavailable, "worker: %s", err.Error()), o.Close())
	}
	if err := o.makeCurrent(ctx, cfg.Temporal.Version); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	o.run()
	return o, nil
}

// assemble wires everything but the worker.
func assemble(cfg Config, temporal client.Client, movers mover.Directory) (*Orchestrator, error) {
	incarnation, err := newIncarnation()
	if err != nil {
		return nil, err
	}
	o := &Orchestrator{cfg: cfg, incarnation: incarnation, log: cfg.Log, temporal: temporal, movers: movers, metrics: newMetrics(cfg.Metrics)}
	o.life, o.end = context.WithCancel(context.Background())
	o.records, o.forget = context.WithCancel(context.Background())
	o.hub = newHub(cfg.InFlight, cfg.Window, o.over)
	o.starts, o.pulse = newStarts(cfg.Starts), &pulse{}
	o.bodies = newBodies(cfg.Bodies, cfg.InFlight)
	o.fleet = newFleet(o)
	o.steps = &activities.Steps{Ledger: cfg.Ledger, Engines: cfg.Engines, Movers: movers, Readers: readers{o}, Placer: o.fleet, Scattered: o.fleet.Scattered,
		Bodies: o.bodies, Attempts: activities.NewAttempts(2 * cfg.InFlight), Observer: o.metrics, Log: o.log,
		SerialBelow: cfg.SerialBelow, RequireLane: cfg.RequireLane, Local: o.local, Delivered: o.delivered}
	return o, nil
}

// run begins what goes on until Close.
func (o *Orchestrator) run() {
	o.background(func(ctx context.Context) { o.steps.RenewLeases(ctx, o.cfg.Lease) })
	o.background(o.fleet.run)
	o.background(o.sweep)
	if o.cfg.Operations != nil {
		o.background(o.watchLeaks)
	}
}

func dialTemporal(ctx context.Context, cfg Config, beat *pulse) (client.Client, error) {
	opts := client.Options{HostPort: cfg.Temporal.HostPort, Namespace: cfg.Temporal.Namespace, Logger: log.NewStructuredLogger(cfg.Log)}
	if cfg.Temporal.Converter != nil {
		// Messages of failures too: they are the typed errors' details.
		opts.DataConverter = cfg.Temporal.Converter
		opts.FailureConverter = sdktemporal.NewDefaultFailureConverter(sdktemporal.DefaultFailureConverterOptions{DataConverter: cfg.Temporal.Converter, EncodeCommonAttributes: true})
	}
	opts.ConnectionOptions.TLS = cfg.Temporal.TLS
	opts.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{} // payloads are small: gzip is CPU on both sides
	opts.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(beat.intercept),
		grpc.WithStaticStreamWindowSize(temporalWindow), grpc.WithStaticConnWindowSize(temporalWindow)}
	if cfg.Temporal.APIKey != "" {
		opts.Credentials = client.NewAPIKeyStaticCredentials(cfg.Temporal.APIKey)
	}
	c, err := client.DialContext(ctx, opts)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "temporal at %s: %s", cfg.Temporal.HostPort, err.Error())
	}
	return c, nil
}

// background runs fn until Close; fn must end with its context. After Close
// nothing runs any more.
func (o *Orchestrator) background(fn func(context.Context)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.stopped {
		o.wg.Go(func() { fn(o.life) })
	}
}

// recordGrace is how long Close waits for what must be recorded.
const recordGrace = 2 * time.Second

// recording is background for what must be recorded: Close gives it a moment.
func (o *Orchestrator) recording(fn func(context.Context)) {
	o.background(func(context.Context) { fn(o.records) })
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
			o.metrics.live.Set(float64(o.hub.open.Load()))
		}
	}
}

// over is called once, when a stream has its terminal event: it is counted, what
// the client wrote is dropped and its leases are renewed no more.
func (o *Orchestrator) over(s *stream, outcome string) {
	s.mu.Lock()
	in, was, first, last := s.in, s.role, s.first, s.events[len(s.events)-1]
	s.mu.Unlock()
	if was != roleCopy { // whose own gateway counts it
		o.metrics.ended(first, o.steps.Attempts.Took(in.Plan.Attempt, handoff.StepPrefill), last.Usage, outcome)
	}
	if was != roleReads {
		return
	}
	a := in.Plan.Attempt
	o.bodies.drop(a.Handoff)
	if s.final() {
		o.dropCheck(in)
	}
	o.steps.Attempts.Unkeep(a)
	// A permit that no step settled here: its steps ran in another process.
	if outcome == outcomeCompleted {
		o.fleet.Step(a, handoff.StepCommit, nil)
	} else {
		o.fleet.Step(a, handoff.StepReserve, errNotBegun)
	}
}

// dropCheck takes what the client wrote out of the claim check before its time.
func (o *Orchestrator) dropCheck(in steps.Input) {
	check, ok := o.cfg.Bodies.(Check)
	if !ok {
		return
	}
	o.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, in.Lease)
		defer cancel()
		if err := check.Drop(ctx, in.Tenant, in.Plan.Attempt.Handoff); err != nil {
			o.log.Debug("a body stays until its time", "handoff", in.ID, "error", err.Error())
		}
	})
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
	if o.worker != nil {
		o.worker.Stop()
	}
	for _, s := range o.hub.live() {
		s.fail(handoff.Errorf(handoff.CodeUnavailable, "this gateway is shutting down"))
	}
	o.mu.Lock()
	o.stopped = true
	o.mu.Unlock()
	o.end()
	t := time.AfterFunc(recordGrace, o.forget) // how a stream ended is worth a moment
	o.wg.Wait()
	t.Stop()
	o.forget()
	o.steps.Attempts.Close()
	o.temporal.Close()
	var errs []error
	for _, c := range o.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
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
