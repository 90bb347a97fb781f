package telemetry

import (
	"net/http"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MaxScrapes bounds how many scrapes one process answers at a time.
const MaxScrapes = 4

// Registry is a registry of its own (never the library's global one), with what
// every process tells: Go runtime, process and version.
func Registry(process string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "surehand_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"process": process, "version": Version()},
	})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Metrics serves r in the Prometheus text format.
func Metrics(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r, MaxRequestsInFlight: MaxScrapes})
}

// Version of the main module, as far as the build recorded one.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && version == "(devel)" {
			return s.Value
		}
	}
	return version
}
