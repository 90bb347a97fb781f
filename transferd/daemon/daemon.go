// Package daemon puts one transferd together: data folder, fence, engine socket,
// peer and control sides, pulls, trace and metrics.
package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/audit"
	"github.com/surehand/surehand/transferd/control"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/metrics"
	"github.com/surehand/surehand/transferd/pull"
	"github.com/surehand/surehand/transferd/segment"
	"github.com/surehand/surehand/transferd/session"
	"github.com/surehand/surehand/transferd/store"
	"github.com/surehand/surehand/transferd/trace"
	"github.com/surehand/surehand/transferd/transport"
	"github.com/surehand/surehand/transferd/transport/local"
	"github.com/surehand/surehand/transferd/transport/tcp"
)

// DrainTimeout is what running pulls and reads may still take after a stop was
// asked for.
const DrainTimeout = handoff.LeaseDefault

// Config of a daemon.
type Config struct {
	Node             handoff.NodeID
	Data             string       // folder; one daemon each
	EngineSocket     string       // path
	Control          string       // unix:///path, or host:port
	Peer             string       // host:port
	Advertise        string       // host:port told to others; empty: what is listened on
	Metrics          string       // host:port, or unix:///path; empty: none
	TraceFile        string       // empty: none
	Audit            *slog.Logger // a line for each grant, refusal and revocation; nil: none
	Lease            time.Duration
	ProgressDeadline time.Duration
	Retention        time.Duration
	QuarantineMax    uint64
	Streams          int         // connections that one pull may use side by side; 0: DefaultStreams()
	StreamBytes      uint64      // what a pull must move for each of them but the first; 0: 8 MiB
	Unchecked        bool        // transfers may ask for no checksums: one trust domain
	Reread           bool        // what landed is read once more before it is verified
	TLS              *tls.Config // of the peer side, both ways, and of the control side; nil: loopback only
	CUDA             string      // the driver library; empty: no device memory
	ControlTLS       *tls.Config // of the control side; nil: TLS
	MetricsTLS       *tls.Config // off loopback; nil: loopback only
	Log              *slog.Logger
}

// DefaultStreams is for a host that shares its cores with engines: one connection
// for two of them, at most four. Over loopback a second one gains nothing; between
// hosts each has a window and, under TLS, a core of its own.
func DefaultStreams() int { return min(max(runtime.GOMAXPROCS(0)/2, 1), 4) }

// Daemon is a running transferd.
type Daemon struct {
	cfg     Config
	store   *store.Store
	core    *fence.Core
	hub     *trace.Hub
	puller  *pull.Puller
	engines *session.Server
	peers   *tcp.Server
	dialler *tcp.Opener
	control *control.Server
	metrics *metrics.Server // nil when not asked for

	stop      context.CancelFunc
	wg        sync.WaitGroup
	failed    chan error // the first part that broke
	stopTrace chan struct{}
	waitTrace func() error
	waitAudit func()
	closeOnce sync.Once
	closeErr  error
}

// Start begins the next life of a daemon and serves.
func Start(cfg Config) (*Daemon, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	st, err := store.Open(cfg.Data, cfg.Node)
	if err != nil {
		return nil, err
	}
	cfg.Log = cfg.Log.With("node", cfg.Node, "incarnation", st.Incarnation)
	d := &Daemon{cfg: cfg, store: st, failed: make(chan error, 1), stopTrace: make(chan struct{}), waitTrace: func() error { return nil }, waitAudit: func() {}}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	if err := d.listen(); err != nil {
		stop()
		return nil, errors.Join(err, d.unlisten(ctx), st.Close())
	}
	if err := segment.ProbeProcess(); err != nil {
		cfg.Log.Warn("engines with plain memory are refused: it cannot be read from here", "error", err)
	}
	d.serve(ctx)
	return d, nil
}

// listen opens everything before anything is served.
func (d *Daemon) listen() (err error) {
	cfg, st := d.cfg, d.store
	d.hub = trace.NewHub(cfg.Node, st.Incarnation)
	d.core = fence.New(fence.Config{Node: cfg.Node, Incarnation: st.Incarnation, Lease: cfg.Lease, QuarantineMax: cfg.QuarantineMax,
		Retention: cfg.Retention, Awaited: st.Engines, Trace: d.hub.Publish})
	if cfg.TraceFile != "" {
		if d.waitTrace, err = d.hub.WriteFile(cfg.TraceFile, d.stopTrace, func(err error) {
			cfg.Log.Error("the trace file ends here: it cannot be written", "file", cfg.TraceFile, "error", err)
		}); err != nil {
			d.waitTrace = func() error { return nil }
			return err
		}
	}
	if cfg.Audit != nil {
		d.waitAudit = audit.Start(d.hub, cfg.Audit)
	}
	refused := audit.Connections(cfg.Audit)
	if d.peers, err = tcp.Listen(cfg.Peer, tcp.ServerConfig{Core: d.core, Unchecked: cfg.Unchecked, TLS: cfg.TLS, Log: cfg.Log, Refused: refused}); err != nil {
		return err
	}
	streams := cfg.Streams
	if streams == 0 {
		streams = DefaultStreams()
	}
	d.dialler = &tcp.Opener{Node: cfg.Node, Incarnation: st.Incarnation, Lease: d.core.Lease(), Streams: streams, StreamBytes: cfg.StreamBytes, TLS: cfg.TLS}
	d.puller = pull.New(pull.Config{Core: d.core, Unchecked: cfg.Unchecked, Reread: cfg.Reread, ProgressDeadline: cfg.ProgressDeadline, Log: cfg.Log,
		Transports: []transport.Transport{&local.Opener{Core: d.core}, d.dialler}})
	if d.engines, err = session.Listen(cfg.EngineSocket, session.Config{Core: d.core, PeerAddress: d.PeerAddress(), Log: cfg.Log, Remember: st.SetEngines, CUDA: driver(cfg), Refused: refused}); err != nil {
		return err
	}
	service := &control.Service{Core: d.core, Puller: d.puller, Trace: d.hub, PeerAddress: d.PeerAddress()}
	secure := cfg.ControlTLS
	if secure == nil {
		secure = cfg.TLS
	}
	if d.control, err = control.Listen(cfg.Control, service, secure, func(side, peer string, why error) {
		cfg.Log.Warn("control connection refused", "peer", peer, "error", why)
		refused(side, peer, why)
	}); err != nil {
		return err
	}
	if cfg.Metrics != "" {
		d.metrics, err = metrics.Listen(cfg.Metrics, cfg.MetricsTLS, d.core)
	}
	return err
}

// driver loads the CUDA driver. A host without one only has no device memory.
func driver(cfg Config) *native.CUDA {
	if cfg.CUDA == "" {
		return nil
	}
	cuda, err := native.LoadCUDA(cfg.CUDA)
	if err != nil {
		cfg.Log.Info("engines with device memory are refused", "error", err)
		return nil
	}
	return cuda
}

// unlisten undoes a listen that stopped half way: serving under an ended context
// closes.
func (d *Daemon) unlisten(ended context.Context) error {
	d.serve(ended)
	d.wg.Wait()
	d.hub.Close()
	d.waitAudit()
	close(d.stopTrace)
	return d.waitTrace()
}

// serve runs every part that was opened.
func (d *Daemon) serve(ctx context.Context) {
	part := func(serve func(context.Context) error) {
		d.wg.Go(func() {
			if err := serve(ctx); err != nil {
				select {
				case d.failed <- err:
				default:
				}
			}
		})
	}
	d.wg.Go(func() { d.core.Run(ctx) })
	if d.engines != nil {
		part(d.engines.Serve)
	}
	if d.peers != nil {
		part(d.peers.Serve)
	}
	if d.control != nil {
		part(d.control.Serve)
	}
	if d.metrics != nil {
		part(d.metrics.Serve)
	}
}

// Incarnation is this life.
func (d *Daemon) Incarnation() handoff.Incarnation { return d.store.Incarnation }

// PeerAddress is where other daemons reach this one.
func (d *Daemon) PeerAddress() string {
	if d.cfg.Advertise != "" {
		return d.cfg.Advertise
	}
	return d.peers.Addr().String()
}

// ControlAddress is where orchestrators reach it.
func (d *Daemon) ControlAddress() string { return d.control.Address() }

// MetricsAddress is empty without metrics.
func (d *Daemon) MetricsAddress() string {
	if d.metrics == nil {
		return ""
	}
	return d.metrics.Address()
}

// Core is the daemon's fence, for tests.
func (d *Daemon) Core() *fence.Core { return d.core }

// Pulling is how many pulls run, for tests.
func (d *Daemon) Pulling() int { return d.puller.Running() }

// Failed gives the error of the first part that broke.
func (d *Daemon) Failed() <-chan error { return d.failed }

// Drain refuses new targets and sources and waits until what runs has ended, or
// ctx has.
func (d *Daemon) Drain(ctx context.Context) {
	d.core.Drain()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for d.core.Busy() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}

// Close ends everything. Committed targets stay visible for the next life to
// adopt; a repeat answers the same.
func (d *Daemon) Close() error {
	d.closeOnce.Do(func() {
		d.core.Stop()
		d.hub.Close()
		d.stop()
		d.puller.Wait()
		d.dialler.Close()
		d.wg.Wait()
		close(d.stopTrace)
		d.waitAudit()
		d.closeErr = errors.Join(d.waitTrace(), d.core.Unmap(), d.store.Close())
	})
	return d.closeErr
}
