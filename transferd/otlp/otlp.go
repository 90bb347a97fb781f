// Package otlp sends a process's spans to an OpenTelemetry collector. What is
// traced is contracts/tracing's to say.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/surehand/surehand/contracts/tracing"
)

const (
	// maxQueue bounds the spans that wait for a collector; more are dropped, never
	// waited for (S17).
	maxQueue      = 8192
	maxAttributes = 32  // of a span
	maxTextBytes  = 256 // of an attribute
	sendEvery     = time.Second
	flushTimeout  = 3 * time.Second // at the process's end
)

// Config of a process's traces.
type Config struct {
	// Endpoint is the collector's gRPC address: https://host:port, or http:// on
	// loopback. The standard OTEL_EXPORTER_OTLP_* variables say the rest:
	// certificates, headers, timeout.
	Endpoint string
	// Protocol is what OTEL_EXPORTER_OTLP_PROTOCOL asks for; empty: grpc, the only one.
	Protocol string
	Service  string // such as surehand-serve
	// Sample is the share of requests without a traceparent of their own that are
	// traced, 0 to 1; one that brings its own is traced when that is sampled.
	Sample float64
	// Root says that this process begins traces; all others only add to them.
	Root bool
	Log  *slog.Logger
}

// Protocol is what OpenTelemetry's own variables ask for, that of traces first.
func Protocol(getenv func(string) string) string {
	return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
}

// Check says what is wrong with a configuration.
func (c Config) Check() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("OTLP endpoint: %w", err)
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("OTLP endpoint is %q, want https://host:port, or http://host:port on loopback", c.Endpoint)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf("OTLP endpoint %s is not loopback and needs https", c.Endpoint)
	case c.Protocol != "" && c.Protocol != "grpc":
		return fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: spans are sent by grpc only; name the collector's gRPC port (4317) and set grpc, or leave it out", c.Protocol)
	case !(c.Sample >= 0 && c.Sample <= 1):
		return fmt.Errorf("the share of traced requests is %v, want 0 to 1", c.Sample)
	}
	return nil
}

func loopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// Start traces from now on, until the function that it gives is called, which
// sends what waits. It does not wait for the collector: one that is away costs
// spans and nothing else.
func Start(ctx context.Context, c Config) (stop func() error, err error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(c.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("OTLP exporter: %w", err)
	}
	what, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", c.Service)), resource.WithFromEnv(),
		resource.WithHost(), resource.WithProcessPID())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OTLP resource: %w", err), exporter.Shutdown(ctx))
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeCountLimit, limits.AttributeValueLengthLimit = maxAttributes, maxTextBytes
	p := sdktrace.NewTracerProvider(sdktrace.WithResource(what), sdktrace.WithRawSpanLimits(limits), sdktrace.WithSampler(sampler(c)),
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(maxQueue), sdktrace.WithBatchTimeout(sendEvery)))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Log.Warn("spans are lost", "error", err.Error()) }))
	tracing.Use(p)
	return func() error {
		tracing.Use(nil)
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		return p.Shutdown(ctx)
	}, nil
}
