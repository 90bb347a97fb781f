// Package metrics serves a transferd's Prometheus metrics and its health. Nothing here
// names an attempt: labels are few and fixed.
package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/internal/native"
)

// timeout of everything that a scraper does.
const timeout = 5 * time.Second

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("surehand_transferd_"+name, help, labels, nil)
}

var (
	fenced      = desc("fenced_total", "Operations refused, by the code of the refusal.", "code")
	targets     = desc("targets", "Targets that hold memory, by state.", "state")
	sources     = desc("sources", "Sources that hold memory, by state.", "state")
	quarantined = desc("quarantined_bytes", "Bytes of attempts that are over while something may still touch them.")
	registered  = desc("registered_bytes", "Bytes of attached engines' segments.")
	pinned      = desc("pinned_blocks", "Source blocks that a grant may read.")
	tombstones  = desc("tombstones", "Records without memory that answer late messages.")
	pulled      = desc("pulled_bytes_total", "Bytes landed in targets, whatever became of them.")
	gathering   = desc("gather_seconds_total", "Time spent copying pieces together that cannot be sent from where they lie.")
	scattering  = desc("scatter_seconds_total", "Time spent copying pieces apart that could not be read into place.")
	committed   = desc("committed_total", "Targets committed.")
	bytes       = desc("committed_bytes_total", "Bytes of committed targets.")
	engines     = desc("engines", "Attached engines.")
	ready       = desc("ready", "Whether the daemon serves: 1 or 0.")
)

// collector reads the core when it is scraped.
type collector struct{ core *fence.Core }

func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.core.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	seconds := func(d *prometheus.Desc, v time.Duration) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v.Seconds())
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, code := range handoff.Codes() {
		counter(fenced, s.Refusals[code], code.String())
	}
	for st := handoff.TargetOpened; st <= handoff.TargetAborted; st++ {
		gauge(targets, float64(s.TargetStates[st]), st.String())
	}
	for st := handoff.SourceOpened; st <= handoff.SourceClosed; st++ {
		gauge(sources, float64(s.SourceStates[st]), st.String())
	}
	gauge(quarantined, float64(s.QuarantinedBytes))
	gauge(registered, float64(s.RegisteredBytes))
	gauge(pinned, float64(s.PinnedBlocks))
	gauge(tombstones, float64(s.Tombstones))
	gauge(engines, float64(len(s.Engines)))
	isReady := 0.0
	if s.Ready {
		isReady = 1
	}
	gauge(ready, isReady)
	counter(pulled, s.PulledBytes)
	seconds(gathering, s.Gathering)
	seconds(scattering, s.Scattering)
	counter(committed, s.Committed)
	counter(bytes, s.CommittedBytes)
}

// Server answers /metrics, /healthz and /readyz.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// Listen opens unix:///path, a socket of mode 0600, or host:port: on loopback in clear
// text, elsewhere with TLS, and not without. There metrics are for callers with a
// certificate; probes of health show none.
func Listen(address string, secure *tls.Config, core *fence.Core) (*Server, error) {
	l, err := listen(address, secure)
	if err != nil {
		return nil, fmt.Errorf("metrics address: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{core}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", identity.Shown(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !core.IsReady() {
			http.Error(w, "no engine is attached, or one of the life before is still missing", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return &Server{listener: l, server: &http.Server{Handler: mux, ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout, MaxHeaderBytes: 16 << 10}}, nil
}

func listen(address string, secure *tls.Config) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		l, err := native.ListenPrivate(path)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	return identity.Bind(address, secure)
}

// Address is the address that is really listened on.
func (s *Server) Address() string {
	if s.listener.Addr().Network() == "unix" {
		return "unix://" + s.listener.Addr().String()
	}
	return s.listener.Addr().String()
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() }) // Serve returns
	defer stop()
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
