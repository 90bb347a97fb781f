package fleet

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// Ports are taken below the range from which the kernel gives ports to
// connections, so that none is lost between a process's two lives.
const (
	firstPort = 15000
	lastPort  = 32000
)

var ports struct {
	sync.Mutex
	next int
}

// address is a loopback address that was free a moment ago and that no other
// call in this process gets.
func address() (string, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = firstPort + os.Getpid()*31%(lastPort-firstPort)
	}
	for range lastPort - firstPort {
		if ports.next++; ports.next >= lastPort {
			ports.next = firstPort
		}
		a := fmt.Sprintf("127.0.0.1:%d", ports.next)
		l, err := net.Listen("tcp", a)
		if err != nil {
			continue
		}
		return a, l.Close()
	}
	return "", fmt.Errorf("no free port from %d to %d", firstPort, lastPort)
}
