package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// mutualTLS reads the three files; nil when none is given. Both ends of every
// connection show a certificate of the authority. The certificate and its key are
// read again when their file changed, so that they rotate without a restart; a
// change of the authority needs one.
func mutualTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	if certFile == "" && keyFile == "" && caFile == "" {
		return nil, nil
	}
	if certFile == "" || keyFile == "" || caFile == "" {
		return nil, errors.New("--tls-cert, --tls-key and --tls-ca go together")
	}
	own := &certificate{certFile: certFile, keyFile: keyFile}
	if _, err := own.get(); err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: %s holds no certificate", caFile)
	}
	return &tls.Config{
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.get() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.get() },
		RootCAs:              pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}, nil
}

// certificate is a pair of files, read when they changed.
type certificate struct {
	certFile, keyFile string

	mu      sync.Mutex
	changed [2]time.Time
	loaded  *tls.Certificate
}

// get gives the newest pair that is whole. While one file of it is new and the
// other is not yet, they do not fit, and the pair before stays in use.
func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]time.Time
	for i, name := range []string{c.certFile, c.keyFile} {
		st, err := os.Stat(name)
		if err != nil {
			return c.before(err)
		}
		now[i] = st.ModTime()
	}
	if c.loaded != nil && now == c.changed {
		return c.loaded, nil
	}
	next, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return c.before(err)
	}
	c.loaded, c.changed = &next, now
	return c.loaded, nil
}

func (c *certificate) before(err error) (*tls.Certificate, error) {
	if c.loaded != nil {
		return c.loaded, nil
	}
	return nil, err
}
