// Package authority signs certificates for tests and trials on one machine. It
// keeps its key in memory: a deployment has an authority of its own.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/surehand/surehand/transferd/identity"
)

// Authority signs. New.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

// New makes an authority that is good for a day.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	number, err := serial()
	if err != nil {
		return nil, err
	}
	self := &x509.Certificate{SerialNumber: number, Subject: pkix.Name{CommonName: "trial authority " + number.String()}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

func serial() (*big.Int, error) { return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64)) }

// Leaf says whom a certificate is for.
type Leaf struct {
	DNS     []string
	URIs    []string
	IPs     []net.IP
	Expired bool
	Uses    []x509.ExtKeyUsage // empty: both ends
}

// Issue signs a certificate and gives it with its key, in PEM.
func (a *Authority) Issue(l Leaf) (cert, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	number, err := serial()
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{SerialNumber: number, DNSNames: l.DNS, IPAddresses: l.IPs, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.Uses}
	if l.Expired {
		t.NotAfter = time.Now().Add(-time.Minute)
	}
	if len(l.Uses) == 0 {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	for _, text := range l.URIs {
		u, err := url.Parse(text)
		if err != nil {
			return nil, nil, err
		}
		t.URIs = append(t.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &own.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalECPrivateKey(own)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), err
}

// Write issues into files of dir, which it replaces one after the other, as a
// rotation does, and says where they are.
func (a *Authority) Write(dir, name string, l Leaf) (identity.Files, error) {
	f := identity.Files{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, name+".ca.pem")}
	cert, key, err := a.Issue(l)
	if err != nil {
		return f, err
	}
	return f, errors.Join(Replace(f.CA, a.PEM), Replace(f.Cert, cert), Replace(f.Key, key))
}

// Replace swaps a file for another in one step.
func Replace(name string, text []byte) error {
	next := name + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, name)
}
