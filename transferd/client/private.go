package client

import (
	"errors"
	"net"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/internal/socket"
)

// Listener is a Unix socket of mode 0600 with the engine socket's frames, for
// words between processes of this user on this host. Not a daemon's own.
type Listener struct{ unix *net.UnixListener }

// ListenPrivate makes the socket; a leftover of an earlier life is replaced, a
// socket that somebody still answers on is not.
func ListenPrivate(path string) (*Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		return nil, also(handoff.Errorf(handoff.CodeConflict, "somebody serves %s already", path), c.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, handoff.Errorf(handoff.CodeInvalid, "socket: %s", err)
	}
	l, err := native.ListenPrivate(path)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "socket: %s", err)
	}
	return &Listener{l}, nil
}

// Accept gives the next peer; one of another user is refused before anything of
// it is read. After Close it answers net.ErrClosed.
func (l *Listener) Accept() (*Peer, error) {
	for {
		c, err := l.unix.AcceptUnix()
		switch {
		case native.IsPassing(err):
			time.Sleep(backoffMin) // descriptors or memory are short
			continue
		case err != nil:
			return nil, err
		}
		uid, err := native.PeerUser(c)
		if err == nil && int64(uid) == int64(os.Getuid()) {
			return &Peer{socket.New(c)}, nil
		}
		_ = c.Close() // nothing of it was read
	}
}

// Close ends the listening; peers stay.
func (l *Listener) Close() error { return l.unix.Close() }

// Peer is one connection. Send may be called by several goroutines, Receive by one.
type Peer struct{ conn *socket.Conn }

// Send writes messages; a peer that takes no byte for a while is broken.
func (p *Peer) Send(messages ...proto.Message) error {
	return p.conn.Send(time.Now().Add(sendTimeout), messages...)
}

// Receive reads the next message.
func (p *Peer) Receive(m proto.Message) error { return p.conn.Receive(m) }

// SetReadDeadline bounds the reads that follow; zero: for ever.
func (p *Peer) SetReadDeadline(t time.Time) error { return p.conn.Unix().SetReadDeadline(t) }

// Close ends the connection and whatever waits on it.
func (p *Peer) Close() error { return p.conn.Close() }
