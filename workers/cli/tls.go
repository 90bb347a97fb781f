package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/surehand/surehand/transferd/identity"
)

// clientTLS is how we speak to others: whom we trust and who we are, by the newest
// certificate in its files. It is nil when nothing is given.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("a TLS certificate needs its key, and a key its certificate")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("TLS CA: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("TLS CA: %s holds no certificate", ca)
		}
	}
	if cert != "" {
		own, err := identity.Pair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() }
	}
	return c, nil
}
