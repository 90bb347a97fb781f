package chaos

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/surehand/surehand/transferd/client"
)

// A host whose packets are lost without a word is given up by a connection that waits
// for it; one whose process does not answer for longer is not: its kernel does.
func TestASilentHostIsGivenUpAndABusyProcessIsNot(t *testing.T) {
	const silence = client.SilenceMin
	inNamespace(t, func() error {
		l, err := net.Listen("tcp4", "127.0.0.1:0") // nobody accepts: its kernel alone answers
		if err != nil {
			return err
		}
		defer l.Close()
		w, err := NewWall()
		if err != nil {
			return err
		}
		port, err := portOf(l.Addr().String())
		if err != nil {
			return err
		}
		c, err := client.Dialer(silence).DialContext(context.Background(), "tcp4", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		read := func(within time.Duration) error {
			if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
				return err
			}
			_, err := c.Read(make([]byte, 1))
			return err
		}
		var timeout net.Error
		if err := read(2 * silence); !errors.As(err, &timeout) || errors.Is(err, unix.ETIMEDOUT) {
			t.Errorf("a process that does not answer: %v", err)
		}
		if err := w.put([]rule{{to: port}, {from: port}}); err != nil {
			return err
		}
		if err := read(time.Minute); !errors.Is(err, unix.ETIMEDOUT) {
			t.Errorf("a host that does not answer: %v", err)
		}
		return w.open()
	})
}
