package identity

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/surehand/surehand/contracts/handoff"
)

// Files say where an identity is read from.
type Files struct {
	Cert, Key, CA string // PEM
	TrustDomain   string // empty: nodes are named by DNS names
}

// Source gives the TLS of one process, always with the newest files that are whole.
type Source struct {
	domain spiffeid.TrustDomain // zero without one
	pair   file[*tls.Certificate]
	roots  file[*x509.CertPool]
}

// Open reads the files; all of them must be whole at first.
func Open(f Files) (*Source, error) {
	s := &Source{pair: pairFile(f.Cert, f.Key), roots: rootsFile(f.CA)}
	if f.TrustDomain != "" {
		var err error
		if s.domain, err = spiffeid.TrustDomainFromString(f.TrustDomain); err != nil {
			return nil, handoff.Errorf(handoff.CodeInvalid, "trust domain: %s", err)
		}
	}
	if _, err := s.pair.get(); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "certificate: %s", err)
	}
	if _, err := s.roots.get(); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "authority: %s", err)
	}
	return s, nil
}

// Names says whether our own certificate is one that others will take for the
// bearer of a role: better refused at the start than by every peer.
func (s *Source) Names(role Role, name string) error {
	pair, err := s.pair.get()
	if err != nil {
		return err
	}
	if err := s.check(pair.Leaf, role, name); err != nil {
		return err
	}
	return s.verify([]*x509.Certificate{pair.Leaf}, pair, x509.ExtKeyUsageAny)
}

// TLS is for both ends of mutual connections: as a server it lets in whoever bears
// the role; as a client it wants the daemon that ServerName names.
func (s *Source) TLS(lets Role) *tls.Config {
	own := func() (*tls.Certificate, error) { return s.pair.get() }
	serve := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own() },
		ClientAuth:     tls.RequireAnyClientCert, // verified below, against the authority of now
		VerifyConnection: func(c tls.ConnectionState) error {
			return s.peer(c, lets, "", x509.ExtKeyUsageClientAuth)
		},
		SessionTicketsDisabled: true, // every connection shows its certificate
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		GetConfigForClient:   func(*tls.ClientHelloInfo) (*tls.Config, error) { return serve, nil },
		GetCertificate:       serve.GetCertificate,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() },
		ClientAuth:           tls.RequireAnyClientCert,
		InsecureSkipVerify:   true, // a fixed pool cannot rotate: VerifyConnection does it all
		VerifyConnection: func(c tls.ConnectionState) error {
			return s.peer(c, Daemon, c.ServerName, x509.ExtKeyUsageServerAuth)
		},
	}
}

// peer verifies the certificate of the other end: that the authority of now signed
// it for this use, and whom it names. With an empty name any bearer will do.
func (s *Source) peer(c tls.ConnectionState, role Role, name string, use x509.ExtKeyUsage) error {
	if len(c.PeerCertificates) == 0 {
		return denied("the peer shows no certificate")
	}
	if err := s.verify(c.PeerCertificates, nil, use); err != nil {
		return err
	}
	if name == "" && use == x509.ExtKeyUsageServerAuth {
		return denied("a connection to nobody in particular")
	}
	return s.check(c.PeerCertificates[0], role, name)
}

// verify follows the chain to the authority of now. Own intermediates come in pair.
func (s *Source) verify(chain []*x509.Certificate, pair *tls.Certificate, use x509.ExtKeyUsage) error {
	roots, err := s.roots.get()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if pair != nil {
		for _, der := range pair.Certificate[1:] {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				return handoff.Errorf(handoff.CodeInvalid, "certificate chain: %s", err)
			}
			between.AddCert(c)
		}
	}
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{use}})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// check compares whom a verified certificate names.
func (s *Source) check(leaf *x509.Certificate, role Role, name string) error {
	if s.domain.IsZero() {
		if name == "" || role == Orchestrator {
			return nil
		}
		if err := leaf.VerifyHostname(name); err != nil {
			return denied("%s", err)
		}
		return nil
	}
	who, err := of(leaf)
	switch {
	case err != nil:
		return err
	case who.domain != s.domain:
		return denied("the peer is of trust domain %s, not %s", who.domain, s.domain)
	case who.role != role:
		return denied("the certificate is of a %s, wanted is a %s", who.role, role)
	case name != "" && who.name != name:
		return denied("the certificate names %s, wanted is %s", who.name, name)
	}
	return nil
}
