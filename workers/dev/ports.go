package dev

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"

	"github.com/surehand/surehand/workers/port"
)

const (
	// firstInnerPort is where ports that nobody types begin: below the range
	// from which the kernel takes client ports, so that a child that restarts
	// finds its own port free.
	firstInnerPort = 17300
	// portTries is how many ports after a taken one are looked at.
	portTries = 200
)

// ErrNotLoopback refuses an address that other machines could reach: nothing
// of `surehand dev` asks who is calling.
var ErrNotLoopback = errors.New("surehand dev listens on loopback only")

// ports hands out loopback ports that are free now, none of them twice, and none
// that another surehand dev of this machine was given: a process that imports vLLM
// listens some 20 s after its port was chosen. Close gives them back.
type ports struct {
	taken map[uint16]io.Closer
	inner uint16
	// Moved tells of wished ports that somebody else has.
	moved []string
}

func newPorts() *ports { return &ports{taken: map[uint16]io.Closer{}, inner: firstInnerPort} }

func (p *ports) close() error {
	var errs []error
	for _, held := range p.taken {
		errs = append(errs, held.Close())
	}
	return errors.Join(errs...)
}

// wish gives the address, or the next free one after it.
func (p *ports) wish(name, text string) (string, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("%s address %q is not host:port: %w", name, text, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() {
		return "", fmt.Errorf("%s address %q: %w", name, text, ErrNotLoopback)
	}
	wished, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", fmt.Errorf("%s address %q: the port is no number up to 65535", name, text)
	}
	if wished == 0 {
		return p.next(ip)
	}
	got, err := p.from(ip, uint16(wished))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	address := netip.AddrPortFrom(ip, got).String()
	if got != uint16(wished) {
		p.moved = append(p.moved, fmt.Sprintf("%s: port %d is taken, using %d", name, wished, got))
	}
	return address, nil
}

// next gives a port that nobody types.
func (p *ports) next(ip netip.Addr) (string, error) {
	n, err := p.from(ip, p.inner)
	if err != nil {
		return "", err
	}
	p.inner = n + 1
	return netip.AddrPortFrom(ip, n).String(), nil
}

func (p *ports) from(ip netip.Addr, first uint16) (uint16, error) {
	for n := first; n < first+portTries && n >= first; n++ {
		if p.taken[n] != nil {
			continue
		}
		held, err := port.Hold(n)
		if errors.Is(err, port.ErrHeld) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if !free(netip.AddrPortFrom(ip, n)) {
			if err := held.Close(); err != nil {
				return 0, err
			}
			continue
		}
		p.taken[n] = held
		return n, nil
	}
	return 0, fmt.Errorf("no free port from %d on %s, %d tried", first, ip, portTries)
}

// free binds the port for a moment. Somebody else than a surehand dev may still
// take it before the child does; then the child says so and is started again.
func free(address netip.AddrPort) bool {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
