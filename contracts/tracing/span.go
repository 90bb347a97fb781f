package tracing

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/surehand/surehand/contracts/handoff"
)

// Names of spans. A step's own is StepPrefix and the step.
const (
	StepPrefix     = "step "
	SpanStream     = "gateway stream"
	SpanPull       = "transferd pull"
	SpanServe      = "transferd serve"
	SpanPrefill    = "engine prefill"
	SpanDecode     = "engine decode"
	Header         = "traceparent" // of an HTTP request
	scope          = "github.com/surehand/surehand"
	maxTraceparent = 64 // bytes; version 00 has 55
)

// Attributes of spans.
const (
	KeyHandoff = "surehand.handoff"
	KeyEpoch   = "surehand.epoch"
	KeyEngine  = "surehand.engine"
	KeyCode    = "surehand.code"
	KeyBytes   = "surehand.bytes"
	KeyPieces  = "surehand.pieces"
	KeyTokens  = "surehand.tokens"
	KeyCached  = "surehand.cached_tokens"
	KeyLane    = "surehand.lane"
	KeyTenant  = "surehand.tenant"
)

// process is what this process traces with; nil while it does not. It is global,
// as in OpenTelemetry itself: a trace crosses every package.
var process atomic.Pointer[tracer]

type tracer struct {
	provider trace.TracerProvider
	tracer   trace.Tracer
}

// w3c carries the context and no baggage: what clients put there may be anything.
var w3c propagation.TraceContext

// Use has this process trace with p, or stop with nil. Servers and connections
// that were made before are not traced.
func Use(p trace.TracerProvider) {
	if p == nil {
		process.Store(nil)
		return
	}
	process.Store(&tracer{p, p.Tracer(scope)})
}

// Provider is what this process traces with, nil while it does not; for
// middleware of OpenTelemetry's own.
func Provider() trace.TracerProvider {
	if t := process.Load(); t != nil {
		return t.provider
	}
	return nil
}

// Propagator carries traces in headers.
func Propagator() propagation.TextMapPropagator { return w3c }

// On says whether this process traces.
func On() bool { return process.Load() != nil }

// Span is one span, or none; its zero value takes everything and keeps nothing.
type Span struct{ span trace.Span }

// Start begins a span of an attempt under the trace of ctx; where that has none,
// or nobody samples it, there is none either.
func Start(ctx context.Context, name string, a handoff.Attempt) (context.Context, Span) {
	t := process.Load()
	if t == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(
		attribute.String(KeyHandoff, string(a.Handoff)), attribute.Int64(KeyEpoch, int64(a.Epoch))))
	return ctx, Span{span}
}

// Current is the span of ctx.
func Current(ctx context.Context) Span {
	if !On() {
		return Span{}
	}
	return Span{trace.SpanFromContext(ctx)}
}

// Text adds an id, a name or a code; never what a client or an engine said.
func (s Span) Text(key, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Number adds a count.
func (s Span) Number(key string, n uint64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(key, int64(n)))
	}
}

// Event marks a moment.
func (s Span) Event(name string) {
	if s.span != nil {
		s.span.AddEvent(name)
	}
}

// End ends the span; of a failure it keeps the code, because details may quote.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		code := handoff.CodeOf(err).String()
		s.span.SetStatus(codes.Error, code)
		s.span.SetAttributes(attribute.String(KeyCode, code))
	}
	s.span.End()
}

// Text gives the sampled trace of ctx as a traceparent; empty: there is none.
func Text(ctx context.Context) string {
	if !On() || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier[Header]
}

// With puts the trace of a traceparent into ctx. What is malformed is no trace.
func With(ctx context.Context, text string) context.Context {
	if text == "" || len(text) > maxTraceparent || !On() {
		return ctx
	}
	return w3c.Extract(ctx, propagation.MapCarrier{Header: text})
}
