package cli

import (
	"context"
	"log/slog"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/transferd/otlp"
)

// Variables of OpenTelemetry's own that say whether and where to; the exporter
// reads the others itself.
const (
	envOTLP       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envOTLPTraces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envSampled    = "OTEL_TRACES_SAMPLER_ARG"
	envOTelOff    = "OTEL_SDK_DISABLED"
)

// traceFlags say where spans go. Without an endpoint nothing is traced.
type traceFlags struct {
	endpoint string
	sample   float64
}

func (t *traceFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.endpoint, "otlp-endpoint", "", "OpenTelemetry collector for traces (OTLP over gRPC): https://host:4317, or http:// on loopback\n(default: OTEL_EXPORTER_OTLP_ENDPOINT, else none)")
	f.Float64Var(&t.sample, "otlp-sample", -1, "share of requests without a traceparent of their own that are traced, 0 to 1\n(default: OTEL_TRACES_SAMPLER_ARG, else 1)")
}

// config is what the flags and OpenTelemetry's variables say; an empty endpoint
// is none.
func (t *traceFlags) config() (otlp.Config, error) {
	c := otlp.Config{Endpoint: t.endpoint, Sample: t.sample, Protocol: otlp.Protocol(os.Getenv)}
	for _, name := range []string{envOTLPTraces, envOTLP} {
		if c.Endpoint == "" {
			c.Endpoint = os.Getenv(name)
		}
	}
	if off, err := strconv.ParseBool(os.Getenv(envOTelOff)); err == nil && off {
		c.Endpoint = ""
	}
	if c.Sample < 0 {
		c.Sample = 1
		if s := os.Getenv(envSampled); s != "" {
			var err error
			if c.Sample, err = strconv.ParseFloat(s, 64); err != nil {
				return c, err
			}
		}
	}
	if c.Endpoint == "" {
		return c, nil
	}
	return c, c.Check()
}

// start traces from now on; what it gives ends that.
func (t *traceFlags) start(ctx context.Context, service string, root bool, log *slog.Logger) (stop func() error, err error) {
	c, err := t.config()
	if err != nil || c.Endpoint == "" {
		return func() error { return nil }, err
	}
	c.Service, c.Root, c.Log = "surehand-"+service, root, log
	return otlp.Start(ctx, c)
}

// env passes the settings on to child processes.
func (t *traceFlags) env() ([]string, error) {
	c, err := t.config()
	if err != nil || c.Endpoint == "" {
		return nil, err
	}
	return []string{envOTLP + "=" + c.Endpoint, envSampled + "=" + strconv.FormatFloat(c.Sample, 'g', -1, 64)}, nil
}
