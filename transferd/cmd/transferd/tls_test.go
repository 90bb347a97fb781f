package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// issue writes a self-signed pair with a serial number and a file time.
func issue(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	self := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"td"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &key.PublicKey, key)
	check(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: private}} {
		check(t, os.WriteFile(name, pem.EncodeToMemory(block), 0o600))
		at := time.Unix(serial, 0)
		check(t, os.Chtimes(name, at, at))
	}
}

func TestACertificateRotatesWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	issue(t, certFile, keyFile, 1)
	cfg, err := mutualTLS(certFile, keyFile, certFile)
	check(t, err)
	serial := func() int64 {
		c, err := cfg.GetCertificate(nil)
		check(t, err)
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		check(t, err)
		return leaf.SerialNumber.Int64()
	}
	if serial() != 1 {
		t.Fatal(serial())
	}
	issue(t, certFile, keyFile, 2)
	if serial() != 2 {
		t.Fatal(serial())
	}
	check(t, os.WriteFile(certFile, []byte("half of it"), 0o600)) // a rotation that is not through yet
	if serial() != 2 {
		t.Fatal(serial())
	}
	check(t, os.Remove(keyFile))
	if serial() != 2 {
		t.Fatal(serial())
	}
	issue(t, certFile, keyFile, 3)
	if serial() != 3 {
		t.Fatal(serial())
	}
}
