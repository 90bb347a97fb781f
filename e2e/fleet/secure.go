package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/identity/authority"
)

// TrustDomain of a secure fleet.
const TrustDomain = "fleet.example"

// ErrNoHost says that this machine has no address that others could reach.
var ErrNoHost = errors.New("this machine has no address off loopback")

// secure is a fleet between hosts: gateways, engines and daemons listen at an
// address off loopback, all by mutual TLS under one authority.
type secure struct {
	authority *authority.Authority
	host      net.IP
	dir       string
	own       *tls.Config // with which the fleet itself looks at it
	web       *http.Client
}

// host is an address of this machine that others could reach.
func host() (net.IP, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.To4(), nil
		}
	}
	return nil, ErrNoHost
}

func newSecure(dir string) (*secure, error) {
	s := &secure{dir: filepath.Join(dir, "tls")}
	var err error
	if s.host, err = host(); err != nil {
		return nil, err
	}
	if s.authority, err = authority.New(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	files, err := s.identity(identity.Orchestrator, "fleet")
	if err != nil {
		return nil, err
	}
	if s.own, err = s.client(files); err != nil {
		return nil, err
	}
	s.web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: s.own}}
	return s, nil
}

// identity issues what a process is known by: its role and name, and this host.
func (s *secure) identity(role identity.Role, name string) (identity.Files, error) {
	u, err := identity.URI(TrustDomain, role, name)
	if err != nil {
		return identity.Files{}, err
	}
	f, err := s.authority.Write(s.dir, string(role)+"-"+name, authority.Leaf{URIs: []string{u.String()}, IPs: []net.IP{s.host}})
	f.TrustDomain = TrustDomain
	return f, err
}

// client is how somebody with these files speaks to gateways and engines.
func (s *secure) client(f identity.Files) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.authority.PEM) {
		return nil, errors.New("the authority's certificate cannot be read")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// Secured is how a client with a certificate for a SPIFFE path of the fleet's trust
// domain (tenant/acme) speaks to gateways, under the fleet's own authority or, to
// be refused, under another.
func (f *Fleet) Secured(path string, stranger bool) (*tls.Config, error) {
	by := f.secure.authority
	if stranger {
		var err error
		if by, err = authority.New(); err != nil {
			return nil, err
		}
	}
	cert, key, err := by.Issue(authority.Leaf{URIs: []string{"spiffe://" + TrustDomain + "/" + path}, IPs: []net.IP{f.secure.host}})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	c := f.secure.own.Clone()
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// at is a free address: off loopback in a secure fleet.
func (f *Fleet) at() (string, error) {
	a, err := address()
	if err != nil || f.secure == nil {
		return a, err
	}
	_, port, err := net.SplitHostPort(a)
	return net.JoinHostPort(f.secure.host.String(), port), err
}

// secured are the flags of a process of a secure fleet; nil in another.
func (f *Fleet) secured(role identity.Role, name string, flags func(identity.Files) []string) ([]string, error) {
	if f.secure == nil {
		return nil, nil
	}
	files, err := f.secure.identity(role, name)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	return flags(files), nil
}

func daemonTLS(i identity.Files) []string {
	return []string{"--tls-cert", i.Cert, "--tls-key", i.Key, "--tls-ca", i.CA, "--trust-domain", i.TrustDomain}
}

func engineTLS(i identity.Files) []string {
	return []string{"--tls-cert", i.Cert, "--tls-key", i.Key, "--tls-client-ca", i.CA, "--trust-domain", i.TrustDomain}
}

func gatewayTLS(i identity.Files) []string {
	return []string{"--tls-cert", i.Cert, "--tls-key", i.Key, "--tls-client-ca", i.CA,
		"--peer-cert", i.Cert, "--peer-key", i.Key, "--peer-ca", i.CA, "--trust-domain", i.TrustDomain}
}
