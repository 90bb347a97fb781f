package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/transport"
)

const (
	cancelTimeout = 50 * time.Millisecond // to tell TP that the pull is over; closing says it too
	lingerTimeout = time.Second           // for TP to take FINISH and close
)

// Opener dials peers, and keeps connections whose attempt ended well for the
// next one.
type Opener struct {
	Node        handoff.NodeID
	Incarnation handoff.Incarnation
	Lease       time.Duration // asked for with each ping
	TLS         *tls.Config   // nil: plaintext, to loopback only

	idle pool
}

// Close closes the connections that are kept; nothing is kept afterwards.
func (o *Opener) Close() { o.idle.close() }

// Name implements transport.Transport.
func (o *Opener) Name() string { return "tcp" }

// Reaches implements transport.Transport: any address will do.
func (o *Opener) Reaches(t transport.Target) error {
	if t.Address == "" {
		return handoff.Errorf(handoff.CodeInvalid, "the source has no address")
	}
	return nil
}

// Open implements transport.Transport: it speaks to exactly the daemon, in the life,
// that the plan names. A kept connection may have been closed by its peer: losing
// it before it answered costs a dial, and PULL may be said twice.
func (o *Opener) Open(ctx context.Context, t transport.Target, sink transport.Sink) (transport.Lane, error) {
	k := key{t.Address, t.Node, t.Instance}
	for {
		kept := o.idle.take(k)
		l, err := o.open(ctx, t, sink, k, kept)
		if err == nil {
			return l, nil
		}
		if kept == nil || handoff.CodeOf(err) != handoff.CodeUnavailable || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (o *Opener) open(ctx context.Context, t transport.Target, sink transport.Sink, k key, kept *connection) (*lane, error) {
	l := &lane{sink: sink, lease: o.Lease, pool: &o.idle, key: k, connection: kept}
	if kept == nil {
		conn, err := o.dial(ctx, t)
		if err != nil {
			return nil, err
		}
		st, err := newStream(conn)
		if err != nil {
			_ = conn.Close() // of no use; err says why
			return nil, broken(err)
		}
		l.connection = &connection{stream: st, born: time.Now()}
	}
	stop := context.AfterFunc(ctx, l.stream.close)
	err := l.begin(o, t, kept == nil)
	if !stop() && err == nil {
		err = handoff.Errorf(handoff.CodeProgress, "the peer did not answer in time")
	}
	if err != nil {
		l.stream.close()
		if ctx.Err() != nil {
			err = broken(ctxError(ctx, err))
		}
		return nil, err
	}
	l.lastByte = time.Now()
	return l, nil
}

func ctxError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && handoff.CodeOf(err) == handoff.CodeUnavailable {
		return handoff.Errorf(handoff.CodeProgress, "the peer did not answer in time")
	}
	return err
}

func (o *Opener) dial(ctx context.Context, t transport.Target) (net.Conn, error) {
	host, _, err := net.SplitHostPort(t.Address)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "source address %q: %s", t.Address, err)
	}
	if ip := net.ParseIP(host); o.TLS == nil && (ip == nil || !ip.IsLoopback()) {
		return nil, handoff.Errorf(handoff.CodeDenied, "source address %s is not a loopback address and needs TLS", t.Address)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, ctxError(ctx, broken(err))
	}
	if o.TLS == nil {
		return conn, nil
	}
	cfg := o.TLS.Clone()
	cfg.ServerName = string(t.Node) // a certificate names its node
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // of no use; err says why
		return nil, ctxError(ctx, broken(err))
	}
	return secure, nil
}

// lane is TD's side of one connection while it serves one attempt.
type lane struct {
	*connection
	pool   *pool
	key    key
	sink   transport.Sink
	source wire.Source
	lease  time.Duration

	outstanding uint64 // pieces asked for and not here
	lastByte    time.Time
	sequence    atomic.Uint64

	last     sync.Mutex // held while a ping or the last word is written
	finished bool       // the last word was said; guarded by last

	entries []wire.Entry
	places  [][]byte
	scratch [][]byte
}

// begin greets, over a new connection, and learns what there is to read.
func (l *lane) begin(o *Opener, t transport.Target, fresh bool) error {
	if fresh {
		if err := l.greet(o, t); err != nil {
			return err
		}
	}
	pull := wire.Pull{Attempt: t.Attempt, Unchecked: t.Unchecked, Capability: t.Capability}
	if err := l.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendPull(b, pull) }); err != nil {
		return err
	}
	p, err := l.stream.expect(wire.KindSource)
	if err != nil {
		return err
	}
	l.source, err = wire.ParseSource(p)
	return err
}

// greet says who dials and whom it means.
func (l *lane) greet(o *Opener, t transport.Target) error {
	hello := wire.Hello{From: o.Node, FromIncarnation: o.Incarnation, To: t.Node, ToIncarnation: t.Instance}
	if err := l.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendHello(b, hello) }); err != nil {
		return err
	}
	p, err := l.stream.expect(wire.KindHelloOK)
	if err != nil {
		return err
	}
	ok, err := wire.ParseHelloOK(p)
	if err != nil {
		return err
	}
	if ok.Node != t.Node || ok.Incarnation != t.Instance {
		return handoff.Errorf(handoff.CodeStaleIncarnation, "%s in its life %d answers at %s", ok.Node, ok.Incarnation, t.Address)
	}
	return nil
}

func (l *lane) Name() string        { return "tcp" }
func (l *lane) Source() wire.Source { return l.source }
func (l *lane) Streams() int        { return 1 }

func (l *lane) Read(runs []wire.Run) error {
	if l.outstanding == 0 {
		l.lastByte = time.Now() // the deadline for a first byte begins with the asking
	}
	for _, r := range runs {
		l.outstanding += uint64(r.Count)
	}
	return l.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendRuns(b, wire.KindRead, runs) })
}

func (l *lane) Ask(q wire.Question) error {
	return l.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendQuestion(b, q) })
}

// Ping says nothing after the last word: what follows that is another attempt's.
func (l *lane) Ping() error {
	l.last.Lock()
	defer l.last.Unlock()
	if l.finished {
		return nil
	}
	p := wire.Ping{Sequence: l.sequence.Add(1), Lease: uint64(l.lease / time.Millisecond)}
	return l.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendPing(b, p) })
}

// Step reads one frame. While pieces are outstanding only their bytes count as
// progress; else any frame does, and TP answers pings.
func (l *lane) Step(deadline time.Duration) error {
	from := time.Now()
	if l.outstanding > 0 {
		from = l.lastByte
	}
	if err := l.stream.conn.SetReadDeadline(from.Add(deadline)); err != nil {
		return broken(err)
	}
	h, err := l.stream.next()
	if err != nil {
		return err
	}
	if h.Kind == wire.KindData {
		return l.data(h.Length, deadline)
	}
	if h.Kind == wire.KindSealed && h.Length != wire.SealedBytes(l.source.Shape.Pieces()) {
		return handoff.Errorf(handoff.CodeMismatch, "a manifest of %d bytes for %d pieces", h.Length, l.source.Shape.Pieces())
	}
	p, err := l.stream.payload(h.Length)
	if err != nil {
		return err
	}
	return l.frame(h.Kind, p)
}

func (l *lane) frame(k wire.Kind, p []byte) error {
	switch k {
	case wire.KindReady:
		runs, err := wire.ParseRuns(k, p, l.source.Shape.Pieces())
		if err != nil {
			return err
		}
		return l.sink.Announced(runs)
	case wire.KindSealed:
		s, err := wire.ParseSealed(p, l.source.Shape.Pieces())
		if err != nil {
			return err
		}
		return l.sink.Sealed(s)
	case wire.KindAnswer:
		a, err := wire.ParseAnswer(p)
		if err != nil {
			return err
		}
		return l.sink.Answered(a)
	case wire.KindPong:
		_, err := wire.ParsePong(p)
		return err
	case wire.KindError:
		refusal, err := wire.ParseError(p)
		if err != nil {
			return err
		}
		return refusal
	}
	return handoff.Errorf(handoff.CodeInvalid, "%s is not an answer", k)
}

// data reads one batch straight into place.
func (l *lane) data(length uint32, deadline time.Duration) error {
	if length < wire.DataCountBytes {
		return handoff.Errorf(handoff.CodeInvalid, "malformed data")
	}
	count, err := l.stream.payload(wire.DataCountBytes)
	if err != nil {
		return err
	}
	n, err := wire.TableBytes(count, length)
	if err != nil {
		return err
	}
	table, err := l.stream.payload(uint32(n))
	if err != nil {
		return err
	}
	if l.entries, err = wire.ParseTable(l.entries, table, length); err != nil {
		return err
	}
	if l.places, err = l.sink.Places(l.entries, l.places[:0]); err != nil {
		return err
	}
	l.scratch = append(l.scratch[:0], l.places...)
	err = l.stream.readInto(l.scratch, func() error {
		l.lastByte = time.Now()
		return l.stream.conn.SetReadDeadline(l.lastByte.Add(deadline))
	})
	if err != nil {
		return err
	}
	l.lastByte = time.Now()
	l.outstanding -= min(l.outstanding, uint64(len(l.entries)))
	return l.sink.Landed(l.entries, l.places)
}

func (l *lane) Finish() error {
	l.last.Lock()
	defer l.last.Unlock()
	l.finished = true
	return l.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendFinish(b, l.source.Grant) })
}

// Interrupt says CANCEL, as far as it still reaches, and closes: the Step that
// waits fails.
func (l *lane) Interrupt() {
	if l.stream.mu.TryLock() { // a write that does not end must not hold the close back
		l.stream.mu.Unlock()
		_ = l.stream.write(cancelTimeout, func(b []byte) []byte { return wire.AppendCancel(b, l.source.Grant) })
	}
	l.stream.close()
}

// Close keeps the connection when TP says that the attempt is over and nothing
// that was asked for is missing; else it destroys it. Either way nothing can land
// any more: the only goroutine that read into the target's memory is the caller.
func (l *lane) Close() {
	if l.finished && l.outstanding == 0 && l.farewell() == nil {
		l.pool.put(l.key, l.connection)
		return
	}
	l.stream.close()
}

// farewell reads up to FINISHED. Closing earlier, with bytes unread, would reset
// FINISH away.
func (l *lane) farewell() error {
	if err := l.stream.conn.SetReadDeadline(time.Now().Add(lingerTimeout)); err != nil {
		return broken(err)
	}
	for {
		h, err := l.stream.next()
		if err != nil {
			return err
		}
		if h.Kind == wire.KindData {
			return handoff.Errorf(handoff.CodeInvalid, "data that nobody asked for")
		}
		p, err := l.stream.payload(h.Length)
		if err != nil {
			return err
		}
		if h.Kind != wire.KindFinished {
			continue // a pong, or news that crossed the last word
		}
		g, err := wire.ParseGrant(h.Kind, p)
		if err == nil && g != l.source.Grant {
			err = handoff.Errorf(handoff.CodeInvalid, "the end of another grant")
		}
		return err
	}
}
