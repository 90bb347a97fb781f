package observe

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"

	"github.com/surehand/surehand/contracts/tracing"
)

// span is what a collector keeps of one.
type span struct {
	trace, id, parent string
	name, service     string
	attributes        map[string]string
}

func (s span) epoch() string { return s.attributes[tracing.KeyEpoch] }

// collector is an OTLP receiver.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []span
	words []string // every text that came, for what must not be among it
}

func collect(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, s := &collector{address: l.Addr().String()}, grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(s, c)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// Export takes what one process sends.
func (c *collector) Export(_ context.Context, m *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range m.GetResourceSpans() {
		service := c.texts(r.GetResource().GetAttributes())["service.name"]
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				for _, e := range s.GetEvents() {
					c.words = append(c.words, e.GetName())
					c.texts(e.GetAttributes())
				}
				c.words = append(c.words, s.GetName(), s.GetStatus().GetMessage(), s.GetTraceState())
				c.spans = append(c.spans, span{trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
					parent: hex.EncodeToString(s.GetParentSpanId()), name: s.GetName(), service: service, attributes: c.texts(s.GetAttributes())})
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// texts reads attributes; the caller holds the lock.
func (c *collector) texts(kvs []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range kvs {
		v := kv.GetValue()
		out[kv.GetKey()] = v.GetStringValue()
		if _, ok := v.GetValue().(*commonpb.AnyValue_IntValue); ok {
			out[kv.GetKey()] = itoa(v.GetIntValue())
		}
		c.words = append(c.words, kv.GetKey(), v.String())
	}
	return out
}

// of gives what came of one trace.
func (c *collector) of(trace string) (out []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.trace == trace {
			out = append(out, s)
		}
	}
	return out
}
