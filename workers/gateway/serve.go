package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// Running is a gateway that serves.
type Running struct {
	g       *Gateway
	http    *http.Server
	grpc    *grpc.Server
	health  *health.Server
	serving sync.WaitGroup
	failed  chan error // of a listener that broke
}

// Serve takes the listeners over.
func (g *Gateway) Serve(l *Listeners) *Running {
	r := &Running{g: g, failed: make(chan error, 2)}
	if l.http != nil {
		r.http = &http.Server{
			Handler: g.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
			MaxHeaderBytes: 2 * MaxHeaderBytes, // headerFits refuses before, with a type
			ErrorLog:       slog.NewLogLogger(g.Log.Handler(), slog.LevelDebug),
			Protocols:      protocols(),
		}
		listener := l.http
		if l.secureHTTP != nil {
			listener = tls.NewListener(listener, l.secureHTTP)
		}
		r.run(func() error { return r.http.Serve(listener) })
	}
	if l.grpc != nil {
		r.grpc, r.health = g.grpcServer(l.secureGRPC)
		r.run(func() error { return r.grpc.Serve(l.grpc) })
		r.run(func() error { g.watchReady(r.health); return nil })
	}
	return r
}

// protocols are the same with and without TLS: a client, or a proxy, that speaks
// HTTP/2 carries many streams on one connection, and so on one descriptor.
func protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

func (r *Running) run(serve func() error) {
	r.serving.Go(func() {
		if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			r.failed <- err
		}
	})
}

// Failed tells of a listener that broke; nothing is sent after a drain.
func (r *Running) Failed() <-chan error { return r.failed }

// Drain stops in order: not ready, new requests are refused as unavailable while
// the listeners stay, streams finish within the grace, the rest get a typed error
// event, then everything is closed.
func (r *Running) Drain() error {
	r.g.draining.Store(true)
	if r.health != nil {
		r.health.Shutdown()
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.g.Grace)
	defer cancel()
	endStreams := context.AfterFunc(ctx, func() { r.g.stop(errStopping) })
	defer r.g.stop(errStopping)
	defer endStreams()
	r.lastStreams(ctx)

	var both sync.WaitGroup
	var httpErr error
	if r.http != nil {
		both.Go(func() { httpErr = r.stopHTTP() })
	}
	if r.grpc != nil {
		both.Go(r.stopGRPC)
	}
	both.Wait()
	r.g.unseen.wait(ctx)
	r.g.stop(errStopping)
	r.g.unseen.all.Wait()
	r.serving.Wait()
	return httpErr
}

// lastStreams keeps the listeners for as long as balancers need to see that this
// gateway is not ready, and as long as streams run: workers elsewhere ask their
// reader here until the end. Whoever asks for more is refused, with a type.
func (r *Running) lastStreams(ctx context.Context) {
	if r.http != nil {
		r.http.SetKeepAlivesEnabled(false)
	}
	notice := time.After(r.g.Notice)
	look := time.NewTicker(drainPoll)
	defer look.Stop()
	for told := false; !told || r.g.streams.Load() > 0; {
		select {
		case <-notice:
			told = true
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopHTTP waits for the streams; those that outlive even their error event
// are cut.
func (r *Running) stopHTTP() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.g.Grace+closeTimeout)
	defer cancel()
	if err := r.http.Shutdown(ctx); err != nil {
		return errors.Join(err, r.http.Close())
	}
	return nil
}

func (r *Running) stopGRPC() {
	cut := time.AfterFunc(r.g.Grace+closeTimeout, r.grpc.Stop)
	defer cut.Stop()
	r.grpc.GracefulStop()
}
