// Package socket frames protobuf messages on the engine socket: a little-endian
// u32 length, then the message. Descriptors travel beside the first byte of the
// frame that names them. Both ends of the socket use it.
package socket

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
)

const (
	// MaxFrameBytes bounds one message: the offsets or the digests of MaxPieces
	// pieces fit.
	MaxFrameBytes = 32 << 20
	// MaxFirstBytes bounds a peer's first message, before it is known.
	MaxFirstBytes = 16 << 10

	growBytes = 256 << 10 // a frame's buffer grows with the bytes that came, not with what was claimed
)

// Conn is one end of an engine socket. Send may be called by several
// goroutines; Receive and ReceiveFirst by one.
type Conn struct {
	conn   *net.UnixConn
	reader *bufio.Reader

	mu  sync.Mutex // guards writes
	out []byte
}

// New frames c.
func New(c *net.UnixConn) *Conn {
	return &Conn{conn: c, reader: bufio.NewReaderSize(c, 64<<10)}
}

// Unix gives the connection below.
func (c *Conn) Unix() *net.UnixConn { return c.conn }

// Close ends the connection and whatever waits on it.
func (c *Conn) Close() error {
	err := c.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Send writes messages in one go, before deadline; the zero time waits for ever.
// After an error the stream is broken and must be closed.
func (c *Conn) Send(deadline time.Time, messages ...proto.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fill(messages); err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.conn.Write(c.out)
	return err
}

// SendFirst writes one message with descriptors beside it.
func (c *Conn) SendFirst(deadline time.Time, m proto.Message, files ...*os.File) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fill([]proto.Message{m}); err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	return native.SendFiles(c.conn, c.out, files...)
}

// fill encodes into the reused buffer; an oversized one is not kept.
func (c *Conn) fill(messages []proto.Message) error {
	if cap(c.out) > 1<<20 {
		c.out = nil
	}
	c.out = c.out[:0]
	for _, m := range messages {
		at := len(c.out)
		out, err := proto.MarshalOptions{}.MarshalAppend(append(c.out, 0, 0, 0, 0), m)
		if err != nil {
			return err
		}
		n := len(out) - at - 4
		if n > MaxFrameBytes {
			return handoff.Errorf(handoff.CodeTooLarge, "message of %d bytes, limit %d", n, MaxFrameBytes)
		}
		binary.LittleEndian.PutUint32(out[at:], uint32(n))
		c.out = out
	}
	return nil
}

// Receive reads the next message into m.
func (c *Conn) Receive(m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return err
	}
	return c.body(c.reader, binary.LittleEndian.Uint32(head[:]), MaxFrameBytes, m)
}

// ReceiveFirst reads a stream's first message, with the descriptors beside it.
// It must come before any Receive. The caller closes the files, on error too.
func (c *Conn) ReceiveFirst(m proto.Message) ([]*os.File, error) {
	var head [4]byte
	files, err := native.ReceiveFiles(c.conn, head[:])
	if err != nil {
		return files, err
	}
	return files, c.body(c.conn, binary.LittleEndian.Uint32(head[:]), MaxFirstBytes, m)
}

func (c *Conn) body(r io.Reader, n, limit uint32, m proto.Message) error {
	if n > limit {
		return handoff.Errorf(handoff.CodeTooLarge, "frame of %d bytes, limit %d", n, limit)
	}
	b := make([]byte, 0, min(n, growBytes))
	for uint32(len(b)) < n {
		step := min(n-uint32(len(b)), max(growBytes, uint32(len(b))))
		at := len(b)
		b = append(b, make([]byte, step)...)
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			return err
		}
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return handoff.Errorf(handoff.CodeInvalid, "frame: %s", err)
	}
	return nil
}
