package daemon_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/client"
)

const (
	clients = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // under which the pull is asked for
	engines = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01" // under which P's engine prefills
)

// tracedPair is a pair of daemons that trace.
func tracedPair(t *testing.T) (*move, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tracing.Use(trace.NewTracerProvider(trace.WithSyncer(kept), trace.WithSampler(trace.ParentBased(trace.NeverSample()))))
	t.Cleanup(func() { tracing.Use(nil) })
	return newPair(t), kept
}

// span waits for one of that name.
func span(t *testing.T, kept *tracetest.InMemoryExporter, name string) (out tracetest.SpanStub) {
	t.Helper()
	eventually(t, "a span "+name, func() bool {
		for _, s := range kept.GetSpans() {
			if s.Name == name {
				out = s
				return true
			}
		}
		return false
	})
	return out
}

func (m *move) pullUnder(traceparent, address string) error {
	spec := client.PullSpec{Plan: m.plan, Token: m.token, SourceAddress: address, Capability: m.capability, ProgressDeadline: patience}
	_, err := m.dh.control.Pull(tracing.With(background(m.t), traceparent), spec, nil)
	return err
}

// What P's daemon does for a pull hangs below that pull, not beside it.
func TestAServeHangsBelowItsPull(t *testing.T) {
	m, kept := tracedPair(t)
	check(t, m.openTarget())
	g, err := m.p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: shape, Offsets: m.from, Blocks: []uint32{1, 2, 3}, Trace: engines})
	check(t, err)
	m.capability = g.Capability
	m.announce(all()...)
	check(t, m.seal())
	check(t, m.pullUnder(clients, m.ph.PeerAddress()))
	pull, serve := span(t, kept, tracing.SpanPull), span(t, kept, tracing.SpanServe)
	if serve.Parent.SpanID() != pull.SpanContext.SpanID() || serve.SpanContext.TraceID() != pull.SpanContext.TraceID() {
		t.Errorf("the serve hangs below %s of %s, the pull is %s of %s", serve.Parent.SpanID(), serve.Parent.TraceID(), pull.SpanContext.SpanID(), pull.SpanContext.TraceID())
	}
}

// A daemon of the release before, or one that does not trace, says nothing of its
// pull: what P's daemon does for it hangs where P's engine said.
func TestAServeForAReaderThatTellsNoTraceHangsBelowItsPrefill(t *testing.T) {
	m, kept := tracedPair(t)
	g, err := m.p.OpenSource(background(t), client.SourceSpec{Plan: m.plan, Shape: shape, Offsets: m.from, Blocks: []uint32{1, 2, 3}, Trace: engines})
	check(t, err)
	old := dial(t, m.ph)
	old.hello("td", m.plan.D.Incarnation, m.ph)
	if k, _ := old.next(); k != wire.KindHelloOK {
		t.Fatal(k)
	}
	old.send(wire.AppendPull(nil, wire.Pull{Attempt: m.plan.Attempt, Capability: g.Capability}))
	if k, _ := old.next(); k != wire.KindSource {
		t.Fatal(k)
	}
	check(t, old.Close())
	if s := span(t, kept, tracing.SpanServe); s.Parent.SpanID().String() != strings.Split(engines, "-")[2] {
		t.Errorf("it hangs below %s", s.Parent.SpanID())
	}
}

// A source of the release before reads a PULL to the byte and refuses what is
// behind it: it is told no trace, whoever traces here.
func TestASourceThatTakesNoTraceIsToldNone(t *testing.T) {
	for name, c := range map[string]struct {
		first byte // of the capability
		trace bool
	}{"of the release before": {1, false}, "of this one": {2, true}} {
		t.Run(name, func(t *testing.T) {
			m, _ := tracedPair(t)
			m.open()
			m.capability[0] = c.first
			said := listenForPull(t, m)
			wantCode(t, m.pullUnder(clients, said.address), handoff.CodeDenied)
			p, err := wire.ParsePull(said.frame())
			check(t, err)
			if (p.Trace != "") != c.trace || c.trace && p.Trace[:36] != clients[:36] {
				t.Errorf("told %q", p.Trace)
			}
		})
	}
}

// listener plays a source up to its PULL, which it keeps and refuses.
type listener struct {
	address string
	once    sync.Once
	pull    chan []byte
}

func (l *listener) frame() []byte {
	select {
	case p := <-l.pull:
		return p
	case <-time.After(patience):
		return nil
	}
}

func listenForPull(t *testing.T, m *move) *listener {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	l := &listener{address: at.Addr().String(), pull: make(chan []byte, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := at.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			l.play(c, m)
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = at.Close()
		wg.Wait()
	})
	return l
}

func (l *listener) play(c net.Conn, m *move) {
	next := func() []byte {
		head := make([]byte, wire.HeaderBytes)
		if _, err := io.ReadFull(c, head); err != nil {
			return nil
		}
		h, err := wire.ParseHeader(head)
		if err != nil {
			return nil
		}
		b := make([]byte, h.Length)
		if _, err := io.ReadFull(c, b); err != nil {
			return nil
		}
		return b
	}
	if next() == nil {
		return
	}
	_, _ = c.Write(wire.AppendHelloOK(nil, wire.HelloOK{Node: m.plan.P.Node, Incarnation: m.plan.P.Incarnation}))
	if p := next(); p != nil {
		l.once.Do(func() { l.pull <- p })
		_, _ = c.Write(wire.AppendError(nil, handoff.Errorf(handoff.CodeDenied, "enough")))
		_, _ = io.Copy(io.Discard, c)
	}
}
