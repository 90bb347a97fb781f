package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/transport"
)

const (
	branchBytes = 8 << 20 // of StreamBytes
	// standstill is how long a batch over a joined connection may stand still; the
	// lane's own deadline, over all connections, is mostly shorter.
	standstill = 2 * handoff.ProgressDeadline
)

// branches are the connections that joined a lane's first one. They bring pieces
// and nothing else. When one breaks the lane is broken: what did not land is asked
// for again over the next one.
type branches struct {
	joined sync.WaitGroup

	mu    sync.Mutex
	list  []*reader
	over  bool // no other may join
	cause error
	stop  context.CancelFunc
}

// branch dials, beside the pull, as many connections as its bytes are worth.
func (l *lane) branch(o *Opener, t transport.Target) {
	each := o.StreamBytes
	if each == 0 {
		each = branchBytes
	}
	n := min(o.Streams-1, int(l.source.Shape.Bytes()/each))
	if n <= 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), helloTimeout)
	l.stop = stop
	for range n {
		l.joined.Go(func() {
			c, err := l.join(ctx, o, t)
			if err != nil {
				return // the pull does with fewer
			}
			r := &reader{connection: c}
			if !l.enter(r) {
				c.stream.close()
				return
			}
			l.carry(r)
		})
	}
}

// join greets over one more connection, or takes one that is kept.
func (l *lane) join(ctx context.Context, o *Opener, t transport.Target) (*connection, error) {
	c := o.idle.take(l.key)
	fresh := c == nil
	if fresh {
		var err error
		if c, err = o.connect(ctx, t); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, c.stream.close)
	err := l.askToJoin(c.stream, o, t, fresh)
	if !stop() && err == nil {
		err = handoff.Errorf(handoff.CodeProgress, "the peer did not answer in time")
	}
	if err != nil {
		c.stream.close()
	}
	return c, err
}

func (l *lane) askToJoin(st *stream, o *Opener, t transport.Target, fresh bool) error {
	if fresh {
		if err := greet(st, o, t); err != nil {
			return err
		}
	}
	if err := st.write(writeTimeout, func(b []byte) []byte { return wire.AppendJoin(b, pullOf(t)) }); err != nil {
		return err
	}
	p, err := st.expect(wire.KindJoined)
	if err != nil {
		return err
	}
	g, err := wire.ParseGrant(wire.KindJoined, p)
	if err == nil && g != l.source.Grant {
		err = handoff.Errorf(handoff.CodeStaleToken, "another grant is read there")
	}
	return err
}

func (b *branches) enter(r *reader) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.list = append(b.list, r)
	}
	return !b.over
}

// Streams implements transport.Lane.
func (b *branches) Streams() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return 1 + len(b.list)
}

// idlest gives the connection on which the fewest pieces are outstanding, and how
// many are on all.
func (l *lane) idlest() (r *reader, total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, total = &l.reader, l.outstanding.Load()
	for _, other := range l.list {
		n := other.outstanding.Load()
		total += n
		if n < r.outstanding.Load() {
			r = other
		}
	}
	return r, total
}

// carry reads what was asked for over one connection, until FINISHED.
func (l *lane) carry(r *reader) {
	err := l.pieces(r)
	if err == nil {
		l.pool.put(l.key, r.connection)
		return
	}
	r.stream.close()
	l.mu.Lock()
	broke := !l.over && l.cause == nil
	if broke {
		l.cause = err
	}
	l.mu.Unlock()
	if broke {
		l.stream.close() // Step ends, and tells the cause
	}
}

func (l *lane) pieces(r *reader) error {
	for {
		h, err := r.stream.next()
		if err != nil {
			return err
		}
		if h.Kind == wire.KindData {
			if err := l.bring(r, h.Length); err != nil {
				return err
			}
			continue
		}
		p, err := r.stream.payload(h.Length)
		switch {
		case err != nil:
			return err
		case h.Kind == wire.KindFinished:
			_, err := wire.ParseGrant(h.Kind, p)
			return err
		case h.Kind == wire.KindError:
			refusal, err := wire.ParseError(p)
			if err != nil {
				return err
			}
			return refusal
		}
		return handoff.Errorf(handoff.CodeInvalid, "%s on a connection that joined another", h.Kind)
	}
}

// bring lands a batch and goes on from there. Between batches it is Step that has
// the deadline, over all connections.
func (l *lane) bring(r *reader, length uint32) error {
	if err := l.data(r, length, standstill); err != nil {
		return err
	}
	l.mu.Lock()
	over := l.over
	if !over {
		_ = r.stream.conn.SetReadDeadline(time.Time{}) // a broken one shows in the next read
	}
	l.mu.Unlock()
	if over {
		return nil
	}
	return l.sink.Advance(l)
}

// because prefers what broke a joined connection to what that did to the first.
func (l *lane) because(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.cause != nil {
		return l.cause
	}
	return err
}

// part says the last word over every connection that joined.
func (l *lane) part(g handoff.GrantID) {
	for _, r := range l.leave() {
		_ = r.stream.conn.SetReadDeadline(time.Now().Add(lingerTimeout)) // a broken one shows where it is read
		if r.stream.write(cancelTimeout, func(b []byte) []byte { return wire.AppendFinish(b, g) }) != nil {
			r.stream.close()
		}
	}
}

// cut destroys every connection that joined.
func (l *lane) cut() {
	for _, r := range l.leave() {
		r.stream.close()
	}
}

// leave lets no other connection join, and gives those that did.
func (b *branches) leave() []*reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.stop != nil {
		b.stop()
	}
	return b.list
}
