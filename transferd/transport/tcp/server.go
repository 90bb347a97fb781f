package tcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/internal/native"
)

// MaxConnections bounds the peers that are connected at once.
const MaxConnections = 4096

const acceptPause = 50 * time.Millisecond // while descriptors or memory are short

// ServerConfig of a peer listener.
type ServerConfig struct {
	Core *fence.Core
	TLS  *tls.Config // nil: plaintext, on loopback only
	Log  *slog.Logger
	// Unchecked allows peers to do without checksums; else they are taken anyway.
	Unchecked bool
	// Refused is told of peers that are turned away before they name an attempt; who
	// names one, the core tells of. nil: nobody is told.
	Refused func(side, peer string, why error)
}

// Server is TP's side.
type Server struct {
	cfg      ServerConfig
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once it stops
	wg    sync.WaitGroup
}

// Listen opens the peer side. Port 0 takes a free one; no two daemons share a
// port.
func Listen(address string, cfg ServerConfig) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("peer address: %w", err)
	}
	if ip := l.Addr().(*net.TCPAddr).IP; cfg.TLS == nil && !ip.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("peer address %s is not loopback and needs TLS: give --tls-cert, --tls-key and --tls-ca", l.Addr()), l.Close())
	}
	return &Server{cfg: cfg, listener: l, conns: map[net.Conn]struct{}{}}, nil
}

// Addr is the address that is really listened on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve accepts until ctx ends, then closes every connection and waits for them.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.closeAll)
	defer stop()
	defer s.wg.Wait()
	for {
		c, err := s.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				return c.Close()
			}
			return nil
		case native.IsPassing(err):
			s.cfg.Log.Warn("peer listener: accept", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return fmt.Errorf("peer listener: %w", err)
		}
		if !s.track(c) {
			_ = c.Close() // over the limit, or stopping: the peer sees it and tries elsewhere
			continue
		}
		s.wg.Go(func() {
			defer s.untrack(c)
			if err := s.serve(ctx, c); err != nil {
				s.cfg.Log.Debug("peer connection ended", "peer", c.RemoteAddr().String(), "error", err)
			}
		})
	}
}

func (s *Server) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil || len(s.conns) >= MaxConnections {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) untrack(c net.Conn) {
	_ = c.Close() // closed already, mostly
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) closeAll() {
	_ = s.listener.Close() // Serve returns
	s.mu.Lock()
	open := s.conns
	s.conns = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Close() // its goroutines see it
	}
}

// serve greets one peer and serves its pulls, one after the other.
func (s *Server) serve(ctx context.Context, c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	unpace(c)
	name := handoff.NodeID("")
	if s.cfg.TLS != nil {
		t := tls.Server(c, s.cfg.TLS)
		if err := t.HandshakeContext(ctx); err != nil {
			return s.turnAway(c, identity.Greeting(err))
		}
		name = identity.Node(t.ConnectionState())
		c = t
	}
	st, err := newStream(c)
	if err != nil {
		return err
	}
	holder, err := s.greet(st, name)
	if err != nil {
		return s.turnAway(c, err)
	}
	for err == nil {
		err = s.attempt(ctx, st, holder)
	}
	return err
}

// turnAway tells of a peer that is refused, and gives err. Who left asked for nothing.
func (s *Server) turnAway(c net.Conn, err error) error {
	if s.cfg.Refused != nil && handoff.CodeOf(err) != handoff.CodeUnavailable {
		s.cfg.Refused("peer", c.RemoteAddr().String(), err)
	}
	return err
}

// attempt serves one attempt, or joins one. The connection is of use afterwards
// only if it gives no error.
func (s *Server) attempt(ctx context.Context, st *stream, h fence.Holder) (err error) {
	reading, asked, leave, err := s.admit(ctx, st, h)
	if err != nil {
		return s.refuse(st, err)
	}
	_, span := tracing.Start(tracing.With(ctx, cmp.Or(asked.Trace, reading.Trace())), tracing.SpanServe, asked.Attempt) // an older reader tells none
	defer func() { span.End(err) }()
	finished, err := serveReading(st, reading, s.cfg.Core.Lease(), asked.Unchecked && s.cfg.Unchecked, asked.joins)
	leave() // nothing of this connection looks at the memory any more, nor can ask to
	if !finished {
		return err
	}
	if err := st.write(writeTimeout, func(b []byte) []byte { return wire.AppendFinished(b, reading.Grant()) }); err != nil {
		return err
	}
	return broken(st.conn.SetDeadline(time.Now().Add(serverIdle)))
}

// refuse tells the peer why, as far as it still reaches, and gives err.
func (s *Server) refuse(st *stream, err error) error {
	_ = st.write(writeTimeout, func(b []byte) []byte { return wire.AppendError(b, err) })
	return err
}

// greet checks that the peer means this daemon, in this life, and is who it says.
func (s *Server) greet(st *stream, name handoff.NodeID) (fence.Holder, error) {
	p, err := st.expect(wire.KindHello)
	if err != nil {
		return fence.Holder{}, s.refuse(st, err)
	}
	hello, err := wire.ParseHello(p)
	if err != nil {
		return fence.Holder{}, s.refuse(st, err)
	}
	core := s.cfg.Core
	if hello.To != core.Node() || hello.ToIncarnation != core.Incarnation() {
		return fence.Holder{}, s.refuse(st, handoff.Errorf(handoff.CodeStaleIncarnation, "this is %s in its life %d, wanted was %s in its life %d", core.Node(), core.Incarnation(), hello.To, hello.ToIncarnation))
	}
	if s.cfg.TLS != nil && name != hello.From {
		return fence.Holder{}, s.refuse(st, handoff.Errorf(handoff.CodeDenied, "the certificate names %q, the greeting %q", name, hello.From))
	}
	ok := wire.HelloOK{Node: core.Node(), Incarnation: core.Incarnation()}
	return fence.Holder{Node: hello.From, Incarnation: hello.FromIncarnation},
		st.write(writeTimeout, func(b []byte) []byte { return wire.AppendHelloOK(b, ok) })
}

// asked is what a connection is used for.
type asked struct {
	wire.Pull
	joins bool
}

// admit checks the peer's capability and waits for the source, or joins who reads it.
func (s *Server) admit(ctx context.Context, st *stream, h fence.Holder) (reading *fence.Reading, a asked, leave func(), err error) {
	k, p, err := st.either(wire.KindPull, wire.KindJoin)
	if err != nil {
		return nil, a, nil, err
	}
	if a.Pull, err = wire.ParsePull(p); err != nil {
		return nil, a, nil, err
	}
	if k == wire.KindJoin {
		a.joins = true
		reading, leave, err = s.cfg.Core.Join(a.Attempt, a.Capability, h)
		return reading, a, leave, err
	}
	if reading, err = s.cfg.Core.Admit(ctx, a.Attempt, a.Capability, h); err != nil {
		return nil, a, nil, err
	}
	return reading, a, reading.Destroy, nil
}

// expect reads the one kind of frame that may come now.
func (s *stream) expect(k wire.Kind) ([]byte, error) {
	_, p, err := s.either(k, k)
	return p, err
}

// either reads one of the two kinds of frames that may come now.
func (s *stream) either(k, l wire.Kind) (wire.Kind, []byte, error) {
	h, err := s.next()
	if err != nil {
		return 0, nil, err
	}
	if h.Kind != k && h.Kind != l && h.Kind != wire.KindError {
		return 0, nil, handoff.Errorf(handoff.CodeInvalid, "%s instead of %s", h.Kind, k)
	}
	p, err := s.payload(h.Length)
	if err != nil || h.Kind != wire.KindError {
		return h.Kind, p, err
	}
	refusal, err := wire.ParseError(p)
	if err != nil {
		return 0, nil, err
	}
	return 0, nil, refusal
}
