package port

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// ErrHeld says that another process has a port, whether or not it listens yet.
var ErrHeld = errors.New("another process of Surehand has this port")

// Free's are taken below the range from which the kernel gives ports to
// connections, so that none is lost between a process's two lives.
const (
	first = 15000
	last  = 32000
)

var taken struct {
	sync.Mutex
	next int
	held []io.Closer
}

// Free gives a loopback port at which nobody listens, and that nobody else who asks
// Free or Hold is given while this process lives.
func Free() (int, error) {
	taken.Lock()
	defer taken.Unlock()
	if taken.next == 0 {
		taken.next = first + os.Getpid()*31%(last-first)
	}
	for range last - first {
		if taken.next++; taken.next >= last {
			taken.next = first
		}
		held, err := Hold(uint16(taken.next))
		if errors.Is(err, ErrHeld) {
			continue
		}
		if err != nil {
			return 0, err
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", taken.next))
		if err != nil {
			if err := held.Close(); err != nil {
				return 0, err
			}
			continue
		}
		taken.held = append(taken.held, held)
		return taken.next, l.Close()
	}
	return 0, fmt.Errorf("no free port from %d to %d", first, last)
}
