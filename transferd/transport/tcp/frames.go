// Package tcp moves pieces over TCP, with TLS off loopback. TP's side (Server)
// holds the memory: it checks each range against grant and capability, reads,
// takes the CRC32C of what it read and writes it with one system call. TD's side
// (Opener) reads straight into place.
package tcp

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/internal/native"
)

const (
	helloTimeout = 2 * time.Second // to answer a greeting
	writeTimeout = 2 * time.Second // for a frame that carries no pieces

	// readAhead is small: what is read ahead of a batch's bytes is copied once more.
	readAhead = 4 << 10
	// tlsBuffer gathers headers and small pieces into whole TLS records.
	tlsBuffer = 256 << 10
)

// stream is one framed connection. Reads are by one goroutine, writes by many.
type stream struct {
	conn   net.Conn
	raw    native.RawConn // of plain TCP; nil under TLS
	reader *bufio.Reader
	head   [wire.HeaderBytes]byte
	buffer []byte // of the last frame's payload

	mu     sync.Mutex // guards writes
	out    []byte
	writer *bufio.Writer // under TLS
}

func newStream(c net.Conn) (*stream, error) {
	s := &stream{conn: c, reader: bufio.NewReaderSize(c, readAhead)}
	plain, ok := c.(*net.TCPConn)
	if !ok {
		s.writer = bufio.NewWriterSize(c, tlsBuffer)
		return s, nil
	}
	var err error
	s.raw, err = plain.SyscallConn()
	return s, err
}

// unpace speeds up a connection that does not leave this host.
func unpace(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	here, _ := tcp.LocalAddr().(*net.TCPAddr)
	there, _ := tcp.RemoteAddr().(*net.TCPAddr)
	if here == nil || there == nil || !here.IP.Equal(there.IP) {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil { // a broken connection shows where it is used
		native.Unpace(raw)
	}
}

// next reads a header. The payload must be read before the next call.
func (s *stream) next() (wire.Header, error) {
	if _, err := io.ReadFull(s.reader, s.head[:]); err != nil {
		return wire.Header{}, broken(err)
	}
	return wire.ParseHeader(s.head[:])
}

// payload reads n bytes, which the header bounded, into the reused buffer; it
// grows with what really comes.
func (s *stream) payload(n uint32) ([]byte, error) {
	const step = 64 << 10
	b := s.buffer[:0]
	for uint32(len(b)) < n {
		at := len(b)
		grow := int(min(n-uint32(at), max(step, uint32(at))))
		if cap(b)-at >= grow {
			b = b[:at+grow]
		} else {
			b = append(b, make([]byte, grow)...)
		}
		if _, err := io.ReadFull(s.reader, b[at:]); err != nil {
			return nil, broken(err)
		}
	}
	if cap(b) <= 1<<20 {
		s.buffer = b
	}
	return b, nil
}

// write sends what frame appends, before the deadline that timeout gives.
func (s *stream) write(timeout time.Duration, frame func([]byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = frame(s.out[:0])
	if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return broken(err)
	}
	if _, err := s.conn.Write(s.out); err != nil {
		return broken(err)
	}
	if cap(s.out) > 1<<20 {
		s.out = nil
	}
	return nil
}

// writeBatch sends a DATA frame: its table, then the pieces from where they lie.
func (s *stream) writeBatch(timeout time.Duration, entries []wire.Entry, pieces net.Buffers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return broken(err)
	}
	s.out = wire.AppendData(s.out[:0], entries)
	if s.writer != nil {
		if _, err := s.writer.Write(s.out); err != nil {
			return broken(err)
		}
		for _, p := range pieces {
			if _, err := s.writer.Write(p); err != nil {
				return broken(err)
			}
		}
		return broken(s.writer.Flush())
	}
	pieces[0] = s.out // the caller left the first place for it
	_, err := pieces.WriteTo(s.conn)
	return broken(err)
}

// readInto fills places in order; extend is called before each wait.
func (s *stream) readInto(places [][]byte, extend func() error) error {
	for len(places) > 0 && s.reader.Buffered() > 0 {
		n, err := s.reader.Read(places[0][:min(len(places[0]), s.reader.Buffered())])
		if err != nil {
			return broken(err)
		}
		if places[0] = places[0][n:]; len(places[0]) == 0 {
			places = places[1:]
		}
	}
	if s.raw != nil {
		return broken(native.ReadVector(s.raw, places, extend))
	}
	for _, p := range places {
		for len(p) > 0 {
			if err := extend(); err != nil {
				return broken(err)
			}
			n, err := s.conn.Read(p)
			if err != nil {
				return broken(err)
			}
			p = p[n:]
		}
	}
	return nil
}

// close destroys the connection at once: below TLS, whose farewell could wait for
// a peer that does not read. Whoever uses the stream sees it.
func (s *stream) close() {
	c := s.conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// broken types an I/O error: a broken connection says nothing about what was done.
func broken(err error) error {
	var typed *handoff.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typed):
		return typed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return handoff.Errorf(handoff.CodeProgress, "no new byte within the deadline")
	case native.IsRefused(err):
		return handoff.Errorf(handoff.CodeProgress, "nobody listens there: %s", err)
	}
	var alert tls.AlertError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &alert) || errors.As(err, &certificate) {
		return handoff.Errorf(handoff.CodeDenied, "%s", err)
	}
	return handoff.Errorf(handoff.CodeUnavailable, "connection lost: %s", err)
}
