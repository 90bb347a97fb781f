package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/surehand/surehand/transferd/identity"
)

// ErrPlaintext refuses a listener that other machines could reach without the
// protection it needs.
var ErrPlaintext = errors.New("not a loopback address")

// Listen is where a gateway listens, and under which keys.
type Listen struct {
	HTTP, GRPC string // host:port; port 0 takes a free one; empty HTTP or GRPC: none
	Cert, Key  string // PEM files, read again when they changed; both or neither
	ClientCA   string // PEM file of the authority of callers' certificates
	// Keyed: callers without a certificate are told apart by their keys, so that
	// over HTTP none has to show one. Over gRPC all must, who has an authority.
	Keyed bool
}

// Listeners are bound but not served yet, so that their addresses can be told
// to others first.
type Listeners struct {
	http, grpc             net.Listener
	secureHTTP, secureGRPC *tls.Config
}

// Open binds. Off loopback HTTP needs TLS, and gRPC needs TLS with a client CA:
// its Reader service takes orders from workers.
func (l Listen) Open() (*Listeners, error) {
	open, err := l.secure()
	if err != nil {
		return nil, err
	}
	if open.http, err = bind("HTTP", l.HTTP, open.secureHTTP != nil, "give a TLS certificate and key"); err != nil {
		return nil, err
	}
	if open.grpc, err = bind("gRPC", l.GRPC, open.secureGRPC != nil && l.ClientCA != "", "give a TLS certificate and key and a client CA"); err != nil {
		return nil, errors.Join(err, open.Close())
	}
	return open, nil
}

func (l Listen) secure() (*Listeners, error) {
	if (l.Cert == "") != (l.Key == "") || l.ClientCA != "" && l.Cert == "" {
		return nil, errors.New("a TLS certificate needs its key, and a client CA needs both")
	}
	if l.Cert == "" {
		return &Listeners{}, nil
	}
	files := identity.Files{Cert: l.Cert, Key: l.Key, CA: l.ClientCA}
	web, err := identity.Listener(files, !l.Keyed, "h2", "http/1.1")
	if err != nil {
		return nil, err
	}
	calls, err := identity.Listener(files, true, "h2")
	return &Listeners{secureHTTP: web, secureGRPC: calls}, err
}

// bind checks before it listens: not even for a moment is a port open wrongly.
func bind(name, address string, safe bool, remedy string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s address: %w", name, err)
	}
	if !resolved.IP.IsLoopback() && !safe {
		return nil, fmt.Errorf("%s on %s: %w: listen on 127.0.0.1, or %s", name, address, ErrPlaintext, remedy)
	}
	listener, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return listener, nil
}

// HTTP and GRPC are the addresses bound; empty for none.
func (l *Listeners) HTTP() string { return address(l.http) }
func (l *Listeners) GRPC() string { return address(l.grpc) }

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// Close unbinds what was never served.
func (l *Listeners) Close() error {
	var failed []error
	for _, listener := range []net.Listener{l.http, l.grpc} {
		if listener != nil {
			failed = append(failed, listener.Close())
		}
	}
	return errors.Join(failed...)
}
