package reference

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlaintextNeverLeavesThisHost(t *testing.T) {
	plain := NewConnections(nil, 0)
	defer closeAll(t, plain)
	for _, address := range []string{"10.0.0.1:9000", "engine.example:9000", "[2001:db8::1]:9000", ":9000", "0.0.0.0:9000"} {
		if _, err := plain.Engine(address); handoff.CodeOf(err) != handoff.CodeDenied {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := plain.Engine("no port"); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Error(err)
	}
	secure := NewConnections(&tls.Config{MinVersion: tls.VersionTLS13}, 0)
	defer closeAll(t, secure)
	if _, err := secure.Engine("10.0.0.1:9000"); err != nil {
		t.Error(err)
	}
}

func closeAll(t *testing.T, c *Connections) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// scripted is an engine that answers what a test says.
type scripted struct {
	enginev1.UnimplementedEngineServer
	attach  func(enginev1.Engine_AttachServer) error
	prefill func(enginev1.Engine_PrefillServer) error
}

func (s *scripted) Attach(_ *enginev1.AttachRequest, stream enginev1.Engine_AttachServer) error {
	return s.attach(stream)
}
func (s *scripted) Prefill(_ *enginev1.PrefillRequest, stream enginev1.Engine_PrefillServer) error {
	return s.prefill(stream)
}

func serve(t *testing.T, s *scripted) engine.Engine {
	t.Helper()
	connections := NewConnections(nil, 0)
	address, stop := start(t, s, "127.0.0.1:0")
	t.Cleanup(func() {
		closeAll(t, connections)
		stop()
	})
	e, err := connections.Engine(address)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := connections.Engine(address); err != nil || len(connections.byAddr) != 1 || again == nil {
		t.Errorf("%d connections to one address, %v", len(connections.byAddr), err)
	}
	return e
}

// start is the engine's process.
func start(t *testing.T, s *scripted, at string) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	enginev1.RegisterEngineServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return listener.Addr().String(), func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	}
}

var plan = handoff.Plan{Attempt: handoff.Attempt{Handoff: "h", Epoch: 1, Nonce: 1}}

func TestAStreamThatEndsEarlyTellsNothing(t *testing.T) {
	e := serve(t, &scripted{
		attach:  func(enginev1.Engine_AttachServer) error { return nil },
		prefill: func(enginev1.Engine_PrefillServer) error { return nil },
	})
	if err := e.Attach(t.Context(), plan, handoff.Token{}, 0, func(engine.DecodeEvent) error { return nil }); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("attach: %v", err)
	}
	if _, err := e.Prefill(t.Context(), engine.Prefill{Plan: plan}, nil, nil); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("prefill: %v", err)
	}
}

// A broken stream is asked for once more at once, and P tells the run from its
// beginning; a second break is the caller's.
func TestABrokenPrefillIsAskedForOnceMore(t *testing.T) {
	for _, breaks := range []int{1, 2} {
		asked, opened := 0, 0
		e := serve(t, &scripted{prefill: func(s enginev1.Engine_PrefillServer) error {
			if err := s.Send(&enginev1.PrefillEvent{Event: &enginev1.PrefillEvent_Opened{Opened: &enginev1.PrefillOpened{}}}); err != nil {
				return err
			}
			if asked++; asked <= breaks {
				return nil
			}
			return s.Send(&enginev1.PrefillEvent{Event: &enginev1.PrefillEvent_Sealed{Sealed: &enginev1.PrefillSealed{PromptTokens: 7}}})
		}})
		got, err := e.Prefill(t.Context(), engine.Prefill{Plan: plan}, func(engine.Opened) { opened++ }, nil)
		if whole := err == nil && got.PromptTokens == 7; whole != (breaks == 1) || asked != 2 || opened != 1 {
			t.Errorf("%d breaks: asked %d times, opened %d, %+v, %v", breaks, asked, opened, got, err)
		}
	}
}

func TestAGapOrARepeatInAStreamIsAFault(t *testing.T) {
	for _, position := range []uint32{1, 3} { // 2 is due
		e := serve(t, &scripted{attach: func(s enginev1.Engine_AttachServer) error {
			for _, m := range []*enginev1.DecodeEvent{{Position: 0, Tokens: 2}, {Position: position, Tokens: 1, FinishReason: engine.FinishStop}} {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		}})
		n := 0
		err := e.Attach(t.Context(), plan, handoff.Token{}, 0, func(engine.DecodeEvent) error { n++; return nil })
		if handoff.CodeOf(err) != handoff.CodeInternal || n != 1 {
			t.Errorf("position %d: %d events, %v", position, n, err)
		}
	}
}

func TestARefusalKeepsItsCode(t *testing.T) {
	refused := handoff.Errorf(handoff.CodeAborted, "released")
	e := serve(t, &scripted{
		attach: func(s enginev1.Engine_AttachServer) error {
			return s.Send(&enginev1.DecodeEvent{Failure: rpc.Failure(refused)})
		},
		prefill: func(enginev1.Engine_PrefillServer) error { return rpc.Status(refused) },
	})
	if err := e.Attach(t.Context(), plan, handoff.Token{}, 0, nil); handoff.CodeOf(err) != handoff.CodeAborted {
		t.Errorf("attach: %v", err)
	}
	if _, err := e.Prefill(t.Context(), engine.Prefill{Plan: plan}, nil, nil); handoff.CodeOf(err) != handoff.CodeAborted {
		t.Errorf("prefill: %v", err)
	}
}

func TestAnEngineThatIsGoneIsUnavailableAtOnce(t *testing.T) {
	connections := NewConnections(nil, 0)
	defer closeAll(t, connections)
	e, err := connections.Engine("127.0.0.1:1") // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := e.Describe(ctx); handoff.CodeOf(err) != handoff.CodeUnavailable || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
	// What is to begin there needs another engine, at once.
	if _, err := e.Prefill(ctx, engine.Prefill{Plan: plan}, nil, nil); handoff.CodeOf(err) != handoff.CodeEngine {
		t.Errorf("prefill: %v", err)
	}
	if _, err := e.Reserve(ctx, engine.Reservation{Plan: plan}); handoff.CodeOf(err) != handoff.CodeEngine {
		t.Errorf("reserve: %v", err)
	}
	if err := connections.Forget("127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	closeAll(t, connections)
	if _, err := connections.Engine("127.0.0.1:1"); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Error(err)
	}
}

// ai-dynamo/dynamo#8965 (T-47): an engine that is back where it was is asked again, over
// the same connection, without anybody's help.
func TestAnEngineThatComesBackIsReachedAgain(t *testing.T) {
	there := &scripted{attach: func(enginev1.Engine_AttachServer) error {
		return rpc.Status(handoff.Errorf(handoff.CodeGone, "nothing to attach to"))
	}}
	connections := NewConnections(nil, 0)
	defer closeAll(t, connections)
	address, stop := start(t, there, "127.0.0.1:0")
	e, err := connections.Engine(address)
	if err != nil {
		t.Fatal(err)
	}
	asked := func() handoff.Code {
		return handoff.CodeOf(e.Attach(t.Context(), plan, handoff.Token{}, 0, func(engine.DecodeEvent) error { return nil }))
	}
	for range 3 {
		for end := time.Now().Add(20 * time.Second); asked() != handoff.CodeGone; {
			if time.Now().After(end) {
				t.Fatal("an engine that is back is not reached")
			}
		}
		stop()
		for end := time.Now().Add(20 * time.Second); ; { // until nobody was found there
			if _, err := e.Reserve(t.Context(), engine.Reservation{Plan: plan}); handoff.CodeOf(err) == handoff.CodeEngine {
				break
			}
			if time.Now().After(end) {
				t.Fatal("an engine that is away is not noticed")
			}
		}
		_, stop = start(t, there, address)
	}
	stop()
}
