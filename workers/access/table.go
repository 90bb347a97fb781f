package access

import (
	"context"
	"crypto/x509"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
)

// denied says no more than it must: not whether a key is known elsewhere.
var denied = handoff.Errorf(handoff.CodeDenied, "the credentials are missing or not known")

// caller finds who shows these credentials. What is shown must be good: a bad
// key beside a good certificate is refused, not overlooked.
func (t *table) caller(ctx context.Context, c Credentials) (Caller, error) {
	if c.Authorization != "" {
		scheme, key, _ := strings.Cut(c.Authorization, " ")
		if !strings.EqualFold(scheme, "bearer") {
			return Caller{}, denied
		}
		if found, known := t.keys[Digest(key)]; known {
			return found, nil
		}
		return t.token(ctx, key)
	}
	if c.Peer != nil {
		for _, name := range names(c.Peer) {
			if found, known := t.peers[name]; known {
				return found, nil
			}
		}
	}
	if t.anonymous != nil {
		return *t.anonymous, nil
	}
	return Caller{}, denied
}

// names of a certificate, the most certain first.
func names(c *x509.Certificate) []string {
	var out []string
	for _, u := range c.URIs {
		out = append(out, u.String())
	}
	out = append(out, c.DNSNames...)
	if c.Subject.CommonName != "" {
		out = append(out, c.Subject.CommonName)
	}
	return out
}
