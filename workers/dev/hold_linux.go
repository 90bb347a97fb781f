package dev

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// hold makes a port this process's among all surehand dev of the machine. What it
// binds is a name, which lies in no folder, is of the port's own network namespace
// and is gone with the process, however that ends; nobody speaks to it.
func hold(port uint16) (io.Closer, error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: fmt.Sprintf("@surehand-dev-port-%d", port), Net: "unixgram"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
