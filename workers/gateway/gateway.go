package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
	"github.com/surehand/surehand/workers/payload"
	"github.com/surehand/surehand/workers/quota"
)

// errStopping is why a stream that outlived the grace is ended.
var errStopping = handoff.Errorf(handoff.CodeUnavailable, "the gateway is stopping")

// Config is what a gateway is made of.
type Config struct {
	Front    orchestrator.Front
	Reader   Reader // nil: the gRPC Reader service is not offered
	Log      *slog.Logger
	Registry *prometheus.Registry
	Operate  Operate              // what operators ask for; nil: nothing
	Temporal string               // of the namespace in Temporal's own UI, for links of the page at /ui/; empty: none
	Access   access.Authenticator // who calls; nil: every caller is believed
	Quota    quota.Limiter        // of tenants with limits; nil: they are refused
	Grace    time.Duration        // for streams at the stop; 0: DefaultGrace
	Notice   time.Duration        // not ready but listening, at the stop, for balancers to see; at least while streams run
	Native   Native               // nil: bodies are ours to read, whole
	Codec    *payload.Server      // what is needed to open sealed payloads for operators; nil: none are
	Journal  bool                 // keep every answer for a while, asked or not
}

// Gateway answers HTTP and gRPC on its listeners until it is drained.
type Gateway struct {
	Config
	models   models
	metrics  *metrics
	draining atomic.Bool
	streams  atomic.Int64
	unseen   unseen // answers that no client waits for
	// stop ends the streams that are left after the grace.
	stopping context.Context
	stop     context.CancelCauseFunc
}

// New makes a gateway; Serve starts it.
func New(c Config) (*Gateway, error) {
	if c.Front == nil || c.Log == nil || c.Registry == nil {
		return nil, errors.New("a gateway needs Front, Log and Registry")
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Access == nil {
		c.Access = access.Everybody{}
	}
	g := &Gateway{Config: c}
	var err error
	if g.metrics, err = newMetrics(c.Registry, func() float64 { return float64(g.streams.Load()) }); err != nil {
		return nil, err
	}
	g.models.front = c.Front
	g.stopping, g.stop = context.WithCancelCause(context.Background())
	return g, nil
}

// Ready says whether a request could be served now.
func (g *Gateway) Ready(ctx context.Context) error {
	if g.draining.Load() {
		return errStopping
	}
	return g.Front.Ready(ctx)
}

// begin hands a checked ask to the orchestrator. The caller closes the
// follower and then calls done.
func (g *Gateway) begin(ctx context.Context, a *ask) (f orchestrator.Follower, done func(), err error) {
	if g.draining.Load() {
		return nil, nil, errStopping
	}
	if g.Native != nil {
		return nil, nil, errRawOnly
	}
	if err := a.check(); err != nil {
		return nil, nil, err
	}
	return g.admit(ctx, a.model, func(m orchestrator.Model) (orchestrator.Request, error) {
		t, err := g.count(ctx, a, m)
		if err != nil {
			return orchestrator.Request{}, err
		}
		return a.request(m, t)
	})
}

// admit begins a handoff of a model that is served, within the limit of streams.
func (g *Gateway) admit(ctx context.Context, model string, request func(orchestrator.Model) (orchestrator.Request, error)) (f orchestrator.Follower, done func(), err error) {
	if g.draining.Load() {
		return nil, nil, errStopping
	}
	if g.streams.Add(1) > MaxStreams {
		g.streams.Add(-1)
		return nil, nil, handoff.Errorf(handoff.CodeCapacity, "%d streams are open here, the limit", MaxStreams)
	}
	done = func() { g.streams.Add(-1) }
	m, err := g.models.find(ctx, model)
	if err == nil {
		var r orchestrator.Request
		if r, err = request(m); err == nil {
			f, done, err = g.within(ctx, r, done)
		}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return f, done, nil
}

// within submits what its tenant's quota lets through, and counts it until done.
func (g *Gateway) within(ctx context.Context, r orchestrator.Request, done func()) (orchestrator.Follower, func(), error) {
	l := access.From(ctx).Limits
	limits := quota.Limits{RequestsPerSecond: l.RequestsPerSecond, Burst: l.Burst, TokensInFlight: l.TokensInFlight}
	if !limits.None() {
		if g.Quota == nil {
			return nil, done, handoff.Errorf(handoff.CodeUnavailable, "the tenant has limits and nobody counts them")
		}
		give, err := g.Quota.Take(ctx, r.Tenant, limits, int64(counted{string(r.Prompt), r.Tokens}.length())+int64(r.Sampling.MaxTokens))
		if err != nil {
			return nil, done, overQuota(err)
		}
		streams := done
		done = func() { give(); streams() }
	}
	f, err := g.Front.Submit(ctx, r)
	return f, done, err
}

// live is ctx, ended also when the gateway stops for good.
func (g *Gateway) live(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(g.stopping, func() { cancel(errStopping) })
	return ctx, func() { release(); cancel(nil) }
}

// next reads one event. An error of the follower itself, or an end without a
// terminal event, is the last event, so that no stream ends without one. Left
// is true when the client is gone and nothing can be said to it.
func next(ctx context.Context, f orchestrator.Follower) (e orchestrator.Event, left bool) {
	e, err := f.Next(ctx)
	if err == nil {
		return e, false
	}
	return ending(ctx, err)
}

// pipe writes the event e and those that follow it, until the last one. What
// the follower itself ends with is written as well.
func pipe(ctx context.Context, f orchestrator.Follower, e orchestrator.Event, write func(orchestrator.Event) error) (last orchestrator.Event, left bool) {
	gone := orchestrator.Event{Err: handoff.Errorf(handoff.CodeCancelled, "the client left")}
	failed := false
	each := func(e orchestrator.Event) error {
		last = e
		err := write(e)
		failed = err != nil
		return err
	}
	if each(e) != nil {
		return gone, true
	}
	if e.Terminal() {
		return e, false
	}
	var err error
	if p, ok := f.(orchestrator.Piper); ok {
		err = p.Pipe(ctx, each)
	} else {
		for err == nil && !last.Terminal() {
			if e, err = f.Next(ctx); err == nil {
				err = each(e)
			}
		}
	}
	switch {
	case failed:
		return gone, true
	case err == nil:
		return last, false
	}
	if last, left = ending(ctx, err); !left && write(last) != nil {
		return gone, true
	}
	return last, left
}

// ending is the event that stands for an error of the follower itself.
func ending(ctx context.Context, err error) (e orchestrator.Event, left bool) {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if errors.Is(cause, errStopping) {
			return orchestrator.Event{Err: errStopping}, false
		}
		if errors.Is(cause, context.DeadlineExceeded) {
			return orchestrator.Event{Err: handoff.Errorf(handoff.CodeDeadline, "the request's deadline passed")}, false
		}
		return orchestrator.Event{Err: handoff.Errorf(handoff.CodeCancelled, "the client left")}, true
	}
	var typed *handoff.Error
	if errors.As(err, &typed) {
		return orchestrator.Event{Err: typed}, false
	}
	return orchestrator.Event{Err: handoff.Errorf(handoff.CodeInternal, "the stream ended without its last event: %s", err)}, false
}
