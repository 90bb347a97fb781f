package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehand/surehand/transferd/identity"
)

const (
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
	stopTimeout   = 2 * time.Second
	headerBytes   = 16 << 10
)

// ErrNotLoopback refuses to show metrics in clear text to other machines.
var ErrNotLoopback = identity.ErrClear

// Server answers /metrics, /healthz and /readyz beside a process's real work.
type Server struct {
	Address string // as listened on
	http    *http.Server
	done    chan error
}

// Serve listens until Close: on loopback in clear text, elsewhere with TLS, and not
// without. There metrics are for callers with a certificate; probes of health show
// none. A nil check is always ready.
func Serve(address string, secure *tls.Config, r *prometheus.Registry, ready Check) (*Server, error) {
	listener, err := listen(address, secure)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", identity.Shown(Metrics(r)))
	mux.Handle("GET /healthz", Alive())
	if ready == nil {
		ready = func(context.Context) error { return nil }
	}
	mux.Handle("GET /readyz", Ready(ready))
	return serveOn(listener, mux, 0), nil
}

// serveOn answers on listener; a zero timeout bounds no answer.
func serveOn(listener net.Listener, h http.Handler, timeout time.Duration) *Server {
	s := &Server{
		Address: listener.Addr().String(),
		http: &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, WriteTimeout: timeout, IdleTimeout: idleTimeout,
			MaxHeaderBytes: headerBytes},
		done: make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(listener) }()
	return s
}

func listen(address string, secure *tls.Config) (net.Listener, error) {
	l, err := identity.Bind(address, secure)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return l, nil
}

// Close stops listening and waits for the answers under way, briefly.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		return errors.Join(err, served)
	}
	return err
}
