package otlp

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSpansLeaveThisHostUnderTLSOnly(t *testing.T) {
	for endpoint, good := range map[string]bool{"https://collector.example:4317": true, "http://127.0.0.1:4317": true, "http://[::1]:4317": true, "http://localhost:4317": true,
		"http://collector.example:4317": false, "http://10.0.0.7:4317": false, "collector.example:4317": false, "": false, "unix:///tmp/x": false} {
		if err := (Config{Endpoint: endpoint, Sample: 1}).Check(); (err == nil) != good {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for _, share := range []float64{-0.1, 1.1} {
		if (Config{Endpoint: "http://127.0.0.1:1", Sample: share}).Check() == nil {
			t.Errorf("a share of %v", share)
		}
	}
}

// OpenTelemetry's default is another protocol, so a fleet's environment may ask for
// one that we do not speak: then nothing is sent to a port that does not understand it.
func TestAProtocolThatIsNotSpokenIsRefusedByName(t *testing.T) {
	for asked, good := range map[string]bool{"": true, "grpc": true, "http/protobuf": false, "http/json": false} {
		for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
			c := Config{Endpoint: "http://127.0.0.1:1", Sample: 1, Protocol: Protocol(func(n string) string {
				if n == name {
					return asked
				}
				return ""
			})}
			if err := c.Check(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), asked) {
				t.Errorf("%s=%s: %v", name, asked, err)
			}
		}
	}
}

func TestOnlyAServedRequestBeginsATrace(t *testing.T) {
	sampled := func(c Config, kind trace.SpanKind) bool {
		p := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler(c)))
		_, s := p.Tracer("t").Start(t.Context(), "s", trace.WithSpanKind(kind), trace.WithAttributes(attribute.Bool("x", true)))
		return s.SpanContext().IsSampled()
	}
	if !sampled(Config{Root: true, Sample: 1}, trace.SpanKindServer) {
		t.Error("a gateway's request is not traced")
	}
	if sampled(Config{Root: true, Sample: 1}, trace.SpanKindClient) || sampled(Config{Root: true, Sample: 0}, trace.SpanKindServer) || sampled(Config{Sample: 1}, trace.SpanKindServer) {
		t.Error("what nobody asked to trace is traced")
	}
}
