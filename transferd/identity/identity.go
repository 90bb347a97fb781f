// Package identity is who a daemon is to others and whom it believes: mutual TLS
// from files that are read again when they changed, certificate, key and authority,
// so that all three rotate without a restart.
//
// With a trust domain every certificate carries one SPIFFE id in it, and the id
// says what its bearer may be: spiffe://DOMAIN/transferd/NODE is the daemon NODE,
// which may read what a capability gives to NODE, and nothing else;
// spiffe://DOMAIN/orchestrator/NAME may call control sides. Without one a
// certificate names its node by its first DNS name, and whoever the authority
// signed may call a control side.
package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/surehand/surehand/contracts/handoff"
)

// Role is what a SPIFFE id lets its bearer be; the first segment of its path.
type Role string

const (
	Daemon       Role = "transferd"
	Orchestrator Role = "orchestrator"
)

// id is a parsed SPIFFE id of ours.
type id struct {
	domain spiffeid.TrustDomain
	role   Role
	name   string
}

// URI writes the SPIFFE id of a role's bearer.
func URI(domain string, role Role, name string) (spiffeid.ID, error) {
	td, err := spiffeid.TrustDomainFromString(domain)
	if err != nil {
		return spiffeid.ID{}, handoff.Errorf(handoff.CodeInvalid, "trust domain %q: %s", domain, err)
	}
	out, err := spiffeid.FromSegments(td, string(role), name)
	if err != nil {
		return spiffeid.ID{}, handoff.Errorf(handoff.CodeInvalid, "%s %q: %s", role, name, err)
	}
	return out, nil
}

// of reads the one SPIFFE id of a certificate. Two of them are refused, as the
// standard says: whoever reads the first would believe another than who reads the
// last.
func of(leaf *x509.Certificate) (id, error) {
	if len(leaf.URIs) != 1 {
		return id{}, denied("the certificate has %d URIs, want one SPIFFE id", len(leaf.URIs))
	}
	full, err := spiffeid.FromURI(leaf.URIs[0])
	if err != nil {
		return id{}, denied("the certificate's URI: %s", err)
	}
	for _, role := range []Role{Daemon, Orchestrator} {
		prefix := "/" + string(role) + "/"
		if path := full.Path(); len(path) > len(prefix) && path[:len(prefix)] == prefix {
			name := path[len(prefix):]
			if err := handoff.ValidateID("name in the SPIFFE id", name); err != nil {
				return id{}, denied("%s: %s", full, err)
			}
			return id{full.TrustDomain(), role, name}, nil
		}
	}
	return id{}, denied("%s is no id of a daemon or an orchestrator", full)
}

// Node is the daemon that the peer's verified certificate names: by its SPIFFE id,
// else by its first DNS name, else by its common name. In a trust domain only
// certificates with an id of a daemon get as far as this.
func Node(s tls.ConnectionState) handoff.NodeID {
	if len(s.PeerCertificates) == 0 {
		return ""
	}
	leaf := s.PeerCertificates[0]
	if who, err := of(leaf); err == nil && who.role == Daemon {
		return handoff.NodeID(who.name)
	}
	if len(leaf.DNSNames) > 0 {
		return handoff.NodeID(leaf.DNSNames[0])
	}
	return handoff.NodeID(leaf.Subject.CommonName)
}

// Greeting types the error of a handshake, as a server sees it: whoever left, or broke
// it off, is unavailable; who said too little in time is no progress; everybody else
// was denied.
func Greeting(err error) error {
	var lost *net.OpError // of the connection; one of ours is a "local error"
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return handoff.Errorf(handoff.CodeProgress, "TLS: %s", err)
	case errors.Is(err, io.EOF), errors.As(err, &lost) && lost.Op != "local error":
		return handoff.Errorf(handoff.CodeUnavailable, "TLS: %s", err)
	}
	return denied("TLS: %s", err)
}

func denied(format string, args ...any) error {
	return handoff.Errorf(handoff.CodeDenied, format, args...)
}
