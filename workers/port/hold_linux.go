package port

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Hold makes a port this process's among all that ask, until it is closed; else
// ErrHeld. What it binds is a name, which lies in no folder, is of the port's own
// network namespace and is gone with the process, however that ends.
func Hold(port uint16) (io.Closer, error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: fmt.Sprintf("@surehand-port-%d", port), Net: "unixgram"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, fmt.Errorf("hold port %d: %w", port, err)
	}
	return c, nil
}
