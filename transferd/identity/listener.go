package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
)

// Pair gives the certificate of two PEM files, always the newest that is whole; it has
// to be at first.
func Pair(cert, key string) (func() (*tls.Certificate, error), error) {
	pair := pairFile(cert, key)
	if _, err := pair.get(); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "certificate: %s", err)
	}
	return pair.get, nil
}

// Listener is the TLS of a listener behind which callers are told apart by somebody
// else. Of the certificates that they show only such as the authority of now signed
// pass; without an authority (CA empty) none is asked for, with must nobody comes in
// without one. The trust domain is not looked at. All files are read again when they
// changed. protocols are for ALPN.
func Listener(f Files, must bool, protocols ...string) (*tls.Config, error) {
	l := &listener{pair: pairFile(f.Cert, f.Key), auth: tls.NoClientCert, protocols: protocols}
	if f.CA != "" {
		roots := rootsFile(f.CA)
		l.roots, l.auth = &roots, tls.VerifyClientCertIfGiven
		if must {
			l.auth = tls.RequireAndVerifyClientCert
		}
	}
	if _, err := l.now(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return l.now() }}, nil
}

// listener keeps one config for as long as its files stay, so that tickets of one
// connection are good for the next.
type listener struct {
	pair      file[*tls.Certificate]
	roots     *file[*x509.CertPool]
	auth      tls.ClientAuthType
	protocols []string

	mu     sync.Mutex
	own    *tls.Certificate
	config *tls.Config
}

func (l *listener) now() (*tls.Config, error) {
	own, err := l.pair.get()
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "certificate: %s", err)
	}
	var callers *x509.CertPool
	if l.roots != nil {
		if callers, err = l.roots.get(); err != nil {
			return nil, handoff.Errorf(handoff.CodeInvalid, "client authority: %s", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.config == nil || l.own != own || l.config.ClientCAs != callers {
		l.own = own
		l.config = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}, ClientCAs: callers, ClientAuth: l.auth, NextProtos: l.protocols}
	}
	return l.config, nil
}

// ErrClear refuses a listener that other machines would reach in clear text.
var ErrClear = errors.New("is not loopback, and there is no certificate")

// Bind listens at host:port: on loopback in clear text, elsewhere under secure, and
// without it not even for a moment: the address is looked at before it is bound.
func Bind(address string, secure *tls.Config) (net.Listener, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	local := at.IP.IsLoopback()
	if !local && secure == nil {
		return nil, fmt.Errorf("%s %w", address, ErrClear)
	}
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return nil, err
	}
	if local {
		return l, nil
	}
	return tls.NewListener(l, secure), nil
}

// Shown keeps from callers without a certificate, by 403, what is behind a Listener.
// In clear text, which is on loopback or a private socket, nobody shows one.
func Shown(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "show a client certificate", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
