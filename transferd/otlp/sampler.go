package otlp

import (
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler follows a trace that came with a call; a new one begins only in a
// gateway, with a client's request, and only for the share that is asked for.
func sampler(c Config) sdktrace.Sampler {
	if !c.Root {
		return sdktrace.ParentBased(sdktrace.NeverSample())
	}
	return sdktrace.ParentBased(requests{sdktrace.TraceIDRatioBased(c.Sample)})
}

// requests samples what is served; a call of our own outside any trace is none.
type requests struct{ sdktrace.Sampler }

func (r requests) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Kind != trace.SpanKindServer {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop}
	}
	return r.Sampler.ShouldSample(p)
}
