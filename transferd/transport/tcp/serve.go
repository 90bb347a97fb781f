package tcp

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
)

const (
	// maxJobs bounds the requests of one connection that wait; past it the peer's
	// next frames stay in the socket.
	maxJobs = 64
	// batchBytes is how much is read, checked and written at once: it stays in the
	// cache between the checksum and the copy to the socket.
	batchBytes = 1 << 20
	// revokeGrace is what a write that runs may still take after the source was
	// closed, before the connection is destroyed (L5).
	revokeGrace = 500 * time.Millisecond
)

// job is one request, in the order of its coming.
type job struct {
	runs     []wire.Run
	question *wire.Question
	pong     *wire.Pong
}

// served is one connection that reads one source.
type served struct {
	stream  *stream
	reading *fence.Reading
	lease   time.Duration
	// unchecked: no checksum is taken, for nobody looks at it.
	unchecked bool
	joined    bool // beside another connection that tells the news and answers
	jobs      chan job
	gone      chan struct{} // the peer is gone or said its last word

	finished atomic.Bool // FINISH came

	entries []wire.Entry
	pieces  []uint32
	bytes   uint32 // of the entries
	views   [][]byte
	buffer  []byte // of pieces whose memory is not mapped here
	sealed  bool   // SEALED was sent
}

// serveReading serves until the peer finishes, leaves, or the source is closed.
// When it returns no goroutine of it looks at the source's memory or uses the
// connection. A finished one is whole: it may serve another attempt. Every other
// end destroys it.
func serveReading(st *stream, reading *fence.Reading, lease time.Duration, unchecked, joined bool) (finished bool, err error) {
	c := &served{stream: st, reading: reading, lease: lease, unchecked: unchecked, joined: joined, jobs: make(chan job, maxJobs), gone: make(chan struct{})}
	if err := st.conn.SetDeadline(time.Time{}); err != nil {
		return false, err
	}
	if err := st.write(writeTimeout, c.greeting); err != nil {
		return false, err
	}
	var wg sync.WaitGroup
	var readErr error
	over := make(chan struct{})
	wg.Go(func() {
		defer close(c.gone)
		readErr = c.receive()
	})
	wg.Go(func() { c.revoke(over) })
	err = c.send()
	finished = errors.Is(err, errGone) && c.finished.Load()
	if !finished {
		if !errors.Is(err, errGone) {
			_ = st.write(writeTimeout, func(b []byte) []byte { return wire.AppendError(b, err) }) // as far as it still reaches
		}
		st.close()
	}
	close(over)
	wg.Wait()
	if finished && readErr == nil {
		return true, nil
	}
	return false, errors.Join(err, readErr)
}

func (c *served) greeting(b []byte) []byte {
	r := c.reading
	if c.joined {
		return wire.AppendJoined(b, r.Grant())
	}
	return wire.AppendSource(b, wire.Source{Grant: r.Grant(), State: r.State(), Shape: r.Shape(), Layout: r.Layout()})
}

var errGone = errors.New("the peer is gone")

// receive reads requests until the peer's last word. Silence for a lease is a
// dead peer: a live one pings, on its first connection, with which the others end.
func (c *served) receive() error {
	for {
		if !c.joined {
			if err := c.stream.conn.SetReadDeadline(time.Now().Add(max(c.lease, helloTimeout))); err != nil {
				return broken(err)
			}
		}
		h, err := c.stream.next()
		if err != nil {
			return err
		}
		j, last, err := c.request(h)
		if err != nil || last {
			return err
		}
		select {
		case c.jobs <- j:
		case <-c.reading.Stopped():
			return nil
		}
	}
}

// request reads one frame; last says that the peer stopped.
func (c *served) request(h wire.Header) (j job, last bool, err error) {
	switch h.Kind {
	case wire.KindRead, wire.KindQuestion, wire.KindPing, wire.KindFinish, wire.KindCancel:
	default:
		return j, true, handoff.Errorf(handoff.CodeInvalid, "%s is not a request", h.Kind)
	}
	if c.joined && h.Kind != wire.KindRead && h.Kind != wire.KindFinish && h.Kind != wire.KindCancel {
		return j, true, handoff.Errorf(handoff.CodeInvalid, "%s on a connection that joined another", h.Kind)
	}
	p, err := c.stream.payload(h.Length)
	if err != nil {
		return j, true, err
	}
	switch h.Kind {
	case wire.KindRead:
		j.runs, err = wire.ParseRuns(h.Kind, p, c.reading.Shape().Pieces())
	case wire.KindQuestion:
		var q wire.Question
		q, err = wire.ParseQuestion(p)
		j.question = &q
	case wire.KindPing:
		var ping wire.Ping
		if ping, err = wire.ParsePing(p); err != nil {
			return j, true, err
		}
		state, rerr := c.reading.Renew(time.Duration(min(ping.Lease, uint64(handoff.LeaseMax/time.Millisecond))) * time.Millisecond)
		if rerr != nil {
			state = handoff.SourceClosed // the sender tells why
		}
		j.pong = &wire.Pong{Sequence: ping.Sequence, State: state}
	case wire.KindFinish, wire.KindCancel:
		var g handoff.GrantID
		if g, err = wire.ParseGrant(h.Kind, p); err != nil || g != c.reading.Grant() || h.Kind == wire.KindCancel {
			return j, true, err
		}
		c.finished.Store(true)
		if c.joined {
			return j, true, nil // the first connection says it for the source
		}
		return j, true, c.reading.Finish()
	}
	return j, false, err
}

// revoke cuts a write that does not end after the source was closed.
func (c *served) revoke(over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-c.reading.Stopped():
	}
	deadline := time.Now().Add(revokeGrace)
	again := time.NewTicker(revokeGrace / 4) // a write that began meanwhile set a later one
	defer again.Stop()
	for {
		_ = c.stream.conn.SetWriteDeadline(deadline) // fails only once it is closed
		select {
		case <-over:
			return
		case <-again.C:
		}
	}
}

// send answers requests and tells news until the source or the peer is over.
func (c *served) send() error {
	changed := c.reading.Changed()
	if c.joined {
		changed = nil
	} else if err := c.news(); err != nil {
		return err
	}
	for {
		select {
		case j := <-c.jobs:
			if err := c.do(j); err != nil {
				return err
			}
		case <-changed:
			if err := c.news(); err != nil {
				return err
			}
		case <-c.reading.Stopped():
			if c.joined {
				c.hearOut()
			}
			if c.finished.Load() {
				return errGone // it was closed by its reader's own word
			}
			return c.reading.Why()
		case <-c.gone:
			return errGone
		}
	}
}

// hearOut waits for the last word of a connection whose source its reader closed by
// another: the two may cross.
func (c *served) hearOut() {
	wait := time.NewTimer(revokeGrace)
	defer wait.Stop()
	select {
	case <-c.gone:
	case <-wait.C:
	}
}

func (c *served) do(j job) error {
	switch {
	case j.pong != nil:
		return c.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendPong(b, *j.pong) })
	case j.question != nil:
		answer := wire.Answer{Nonce: j.question.Nonce}
		if err := c.reading.Question(*j.question); err != nil {
			if !errors.As(err, &answer.Refusal) {
				answer.Refusal = handoff.Errorf(handoff.CodeInternal, "%s", err)
			}
		}
		return c.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendAnswer(b, answer) })
	}
	for _, run := range j.runs {
		for i := range run.Count {
			if err := c.add(run.First + i); err != nil {
				return err
			}
		}
	}
	return c.flush()
}

// add puts a piece into the present batch, which is sent when it is full.
func (c *served) add(piece uint32) error {
	length := c.reading.Length(piece)
	if len(c.entries) > 0 && (c.bytes+length > batchBytes || len(c.entries) == wire.MaxBatchPieces) {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.entries = append(c.entries, wire.Entry{Piece: piece, Length: length})
	c.pieces = append(c.pieces, piece)
	c.bytes += length
	return nil
}

// flush posts the batch's reads, takes the checksums of what it reads and writes
// it; each range is checked against the grant here, at the holder of the memory.
func (c *served) flush() error {
	if len(c.entries) == 0 {
		return nil
	}
	defer func() { c.entries, c.pieces, c.bytes = c.entries[:0], c.pieces[:0], 0 }()
	if err := c.reading.Begin(c.pieces); err != nil {
		return err
	}
	defer c.reading.Done(len(c.pieces))
	views, err := c.reading.Views(c.pieces, append(c.views[:0], nil), &c.buffer) // the first place is the table's
	c.views = views[:0]
	if err != nil {
		return err
	}
	for i := range c.entries {
		if c.unchecked {
			break
		}
		c.entries[i].Check = wire.Checksum(views[i+1])
	}
	return c.stream.writeBatch(max(c.lease, writeTimeout), c.entries, net.Buffers(views))
}

// news tells what was announced since, and the manifest once it is sealed.
func (c *served) news() error {
	for rest := true; rest; {
		var runs []wire.Run
		runs, rest = c.reading.News()
		if len(runs) == 0 {
			break
		}
		if err := c.stream.write(writeTimeout, func(b []byte) []byte { return wire.AppendRuns(b, wire.KindReady, runs) }); err != nil {
			return err
		}
	}
	sealed, ok := c.reading.Sealed()
	if !ok || c.sealed {
		return nil
	}
	c.sealed = true
	return c.stream.write(max(c.lease, writeTimeout), func(b []byte) []byte { return wire.AppendSealed(b, sealed) })
}
