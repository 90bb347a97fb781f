package cli

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/workers/telemetry"
)

const metricsUsage = "address of /metrics, /healthz and /readyz: on loopback in clear text, elsewhere with this process's certificate, and metrics for callers with one\n(default: none)"

// watched serves a process's metrics and health; off loopback with its own files.
func watched(address string, f identity.Files, r *prometheus.Registry, ready telemetry.Check) (*telemetry.Server, error) {
	var secure *tls.Config
	if f.Cert != "" && f.Key != "" && f.CA != "" {
		var err error
		if secure, err = identity.Listener(f, false, "h2", "http/1.1"); err != nil {
			return nil, err
		}
	}
	return telemetry.Serve(address, secure, r, ready)
}
