package tracing_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var attempt = handoff.Attempt{Handoff: "h1.n", Epoch: 2}

// one is all that a hot path does for a trace.
func one(ctx context.Context, text string) {
	ctx, s := tracing.Start(tracing.With(ctx, text), tracing.SpanPull, attempt)
	s.Text(tracing.KeyLane, "local")
	s.Number(tracing.KeyBytes, 1<<20)
	s.Event("first token")
	_ = tracing.Text(ctx)
	tracing.Current(ctx).Text(tracing.KeyHandoff, "h1")
	s.End(nil)
}

func TestATraceThatIsOffAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() { one(ctx, parent) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOff(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		one(b.Context(), parent)
	}
}

func on(t *testing.T) *tracetest.InMemoryExporter {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tracing.Use(trace.NewTracerProvider(trace.WithSyncer(kept), trace.WithSampler(trace.ParentBased(trace.NeverSample()))))
	t.Cleanup(func() { tracing.Use(nil) })
	return kept
}

func TestASpanHangsBelowItsTraceparentWithItsEpoch(t *testing.T) {
	kept := on(t)
	ctx, s := tracing.Start(tracing.With(t.Context(), parent), tracing.SpanPull, attempt)
	if text := tracing.Text(ctx); text[:36] != parent[:36] || text == parent {
		t.Errorf("goes on as %s", text)
	}
	s.End(handoff.Errorf(handoff.CodeEngine, "the prompt was: secret"))
	spans := kept.GetSpans()
	if len(spans) != 1 || spans[0].Parent.SpanID().String() != "b7ad6b7169203331" || spans[0].Status.Description != "engine" {
		t.Fatalf("%+v", spans)
	}
	epoch := int64(0)
	for _, a := range spans[0].Attributes {
		if a.Key == tracing.KeyEpoch {
			epoch = a.Value.AsInt64()
		}
	}
	if epoch != 2 {
		t.Errorf("epoch %d", epoch)
	}
}

func TestNothingBeginsATraceByItself(t *testing.T) {
	kept := on(t)
	for _, text := range []string{"", "nonsense", parent[:len(parent)-2] + "00", parent + parent} {
		ctx, s := tracing.Start(tracing.With(t.Context(), text), tracing.SpanPull, attempt)
		if got := tracing.Text(ctx); got != "" {
			t.Errorf("%q goes on as %s", text, got)
		}
		s.End(nil)
	}
	if n := len(kept.GetSpans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}
