package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
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
	// Streams is how many connections one pull may use side by side, 0 and 1: one.
	Streams int
	// StreamBytes is how much a pull must move for each connection but the first: a
	// small one is over before another has joined. 0: 8 MiB.
	StreamBytes uint64

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

// connect dials a connection on which nothing was said yet.
func (o *Opener) connect(ctx context.Context, t transport.Target) (*connection, error) {
	conn, err := o.dial(ctx, t)
	if err != nil {
		return nil, err
	}
	st, err := newStream(conn)
	if err != nil {
		_ = conn.Close() // of no use; err says why
		return nil, broken(err)
	}
	return &connection{stream: st, born: time.Now()}, nil
}

func (o *Opener) open(ctx context.Context, t transport.Target, sink transport.Sink, k key, kept *connection) (*lane, error) {
	l := &lane{sink: sink, lease: o.Lease, pool: &o.idle, key: k, reader: reader{connection: kept}}
	if kept == nil {
		var err error
		if l.connection, err = o.connect(ctx, t); err != nil {
			return nil, err
		}
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
	l.touch()
	l.branch(o, t)
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

// reader is one connection that brings pieces.
type reader struct {
	*connection
	outstanding atomic.Int64 // pieces asked for and not here

	entries []wire.Entry
	places  [][]byte
	scratch [][]byte
}

// lane is TD's side of one attempt: a connection that also brings news and answers,
// and those that joined it.
type lane struct {
	reader
	pool   *pool
	key    key
	sink   transport.Sink
	source wire.Source
	lease  time.Duration

	lastByte atomic.Int64 // when, over any connection, in nanoseconds
	sequence atomic.Uint64

	last     sync.Mutex // held while a ping or the last word is written
	finished bool       // the last word was said; guarded by last

	branches
}

// begin greets, over a new connection, and learns what there is to read.
func (l *lane) begin(o *Opener, t transport.Target, fresh bool) error {
	if fresh {
		if err := greet(l.stream, o, t); err != nil {
			return err
		}
	}
	if err := l.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendPull(b, pullOf(t)) }); err != nil {
		return err
	}
	p, err := l.stream.expect(wire.KindSource)
	if err != nil {
		return err
	}
	l.source, err = wire.ParseSource(p)
	return err
}

func pullOf(t transport.Target) wire.Pull {
	return wire.Pull{Attempt: t.Attempt, Unchecked: t.Unchecked, Capability: t.Capability, Trace: t.Trace}
}

// greet says who dials and whom it means.
func greet(st *stream, o *Opener, t transport.Target) error {
	hello := wire.Hello{From: o.Node, FromIncarnation: o.Incarnation, To: t.Node, ToIncarnation: t.Instance}
	if err := st.write(writeTimeout, func(b []byte) []byte { return wire.AppendHello(b, hello) }); err != nil {
		return err
	}
	p, err := st.expect(wire.KindHelloOK)
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

// touch says that a byte came, or that it is waited for from now on.
func (l *lane) touch() { l.lastByte.Store(time.Now().UnixNano()) }

// Read asks over the connection on which the least is outstanding.
func (l *lane) Read(runs []wire.Run) error {
	r, total := l.idlest()
	if total == 0 {
		l.touch() // the deadline for a first byte begins with the asking
	}
	for _, run := range runs {
		r.outstanding.Add(int64(run.Count))
	}
	return l.because(r.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendRuns(b, wire.KindRead, runs) }))
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
	h, err := l.await(deadline)
	if err != nil {
		return l.because(err)
	}
	if h.Kind == wire.KindData {
		return l.because(l.data(&l.reader, h.Length, deadline))
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

// await waits for a header. Bytes over any other connection put the deadline off.
func (l *lane) await(deadline time.Duration) (wire.Header, error) {
	began := time.Now()
	for {
		from := began
		if _, total := l.idlest(); total > 0 {
			from = time.Unix(0, l.lastByte.Load())
		}
		if err := l.stream.conn.SetReadDeadline(from.Add(deadline)); err != nil {
			return wire.Header{}, broken(err)
		}
		_, err := l.stream.reader.Peek(wire.HeaderBytes)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Unix(0, l.lastByte.Load()).Add(deadline).After(time.Now()) {
			continue
		}
		return l.stream.next()
	}
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
func (l *lane) data(r *reader, length uint32, deadline time.Duration) error {
	if length < wire.DataCountBytes {
		return handoff.Errorf(handoff.CodeInvalid, "malformed data")
	}
	count, err := r.stream.payload(wire.DataCountBytes)
	if err != nil {
		return err
	}
	n, err := wire.TableBytes(count, length)
	if err != nil {
		return err
	}
	table, err := r.stream.payload(uint32(n))
	if err != nil {
		return err
	}
	if r.entries, err = wire.ParseTable(r.entries, table, length); err != nil {
		return err
	}
	if r.places, err = l.sink.Places(r.entries, r.places[:0]); err != nil {
		return err
	}
	r.scratch = append(r.scratch[:0], r.places...)
	err = r.stream.readInto(r.scratch, func() error {
		l.touch()
		return r.stream.conn.SetReadDeadline(time.Now().Add(deadline))
	})
	if err != nil {
		return err
	}
	l.touch()
	r.outstanding.Add(-min(r.outstanding.Load(), int64(len(r.entries))))
	return l.sink.Landed(r.entries, r.places)
}

func (l *lane) Finish() error {
	l.last.Lock()
	defer l.last.Unlock()
	l.finished = true
	l.part(l.source.Grant)
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
	l.cut()
}

// Close keeps the connection when TP says that the attempt is over and nothing
// that was asked for is missing; else it destroys it. Either way nothing can land
// any more: those that read into the target's memory are the caller and the
// goroutines of the connections that joined, which have ended then.
func (l *lane) Close() {
	if l.finished && l.outstanding.Load() == 0 && l.farewell() == nil {
		l.pool.put(l.key, l.connection)
	} else {
		l.stream.close()
		l.cut()
	}
	l.joined.Wait()
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
