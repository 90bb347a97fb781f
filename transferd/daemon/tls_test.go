package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// authority signs the certificates of one deployment.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	self := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &a.key.PublicKey, a.key)
	check(t, err)
	a.cert, err = x509.ParseCertificate(der)
	check(t, err)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) config(node string) *tls.Config {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(a.t, err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{node}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &key.PublicKey, a.key)
	check(a.t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: a.pool, ClientCAs: a.pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

func secure(a *authority, node string) func(*daemon.Config) {
	return func(c *daemon.Config) {
		c.TLS = a.config(node)
		c.Control = "127.0.0.1:0"
	}
}

// securePair dials the control side with a certificate of its own.
func securePair(t *testing.T, change ...func(*daemon.Config)) (*move, *authority) {
	a := newAuthority(t)
	ph, dh := startHost(t, "tp", append(change, secure(a, "tp"))...), startHost(t, "td", append(change, secure(a, "td"))...)
	for _, h := range []*host{ph, dh} {
		cfg := a.config("orchestrator")
		cfg.ServerName = string(h.cfg.Node)
		check(t, h.control.Close())
		var err error
		h.control, err = client.Dial(h.ControlAddress(), client.WithTLS(cfg))
		check(t, err)
	}
	return newMove(t, ph, attach(t, ph.cfg.EngineSocket, "p1"), dh, attach(t, dh.cfg.EngineSocket, "d1")), a
}

func TestBytesArriveOverMutualTLS(t *testing.T) {
	m, _ := securePair(t)
	m.ready()
	got, err := m.pull()
	check(t, err)
	if got.Lane != "tcp" || !m.isEqual() {
		t.Fatalf("%+v", got)
	}
	_, err = m.commit()
	check(t, err)
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
}

func TestAPeerIsWhoItsCertificateNames(t *testing.T) {
	m, a := securePair(t)
	m.ready()
	dialTLS := func(cfg *tls.Config) *peer {
		cfg.ServerName = "tp"
		c, err := tls.Dial("tcp", m.ph.PeerAddress(), cfg)
		check(t, err)
		check(t, c.SetDeadline(time.Now().Add(patience)))
		t.Cleanup(func() { _ = c.Close() })
		return &peer{t, c}
	}
	thief := dialTLS(a.config("thief"))
	thief.hello("td", m.dh.Incarnation(), m.ph) // says that it is the holder
	if code := thief.refusal(); code != handoff.CodeDenied {
		t.Fatal(code)
	}
	stranger := newAuthority(t).config("td")
	stranger.RootCAs = a.pool
	c := dialTLS(stranger)
	if _, err := c.Write(wire.AppendHello(nil, wire.Hello{From: "td", FromIncarnation: 1, To: "tp", ToIncarnation: m.ph.Incarnation()})); err == nil {
		if n, _ := readAll(c); n > 0 {
			t.Fatal("a stranger's certificate was accepted")
		}
	}
	plain, err := client.Dial(m.dh.ControlAddress())
	check(t, err)
	defer func() { check(t, plain.Close()) }()
	if _, err := plain.Describe(background(t), false); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
}

func TestATargetGivesUpOnASourceWithTheWrongCertificate(t *testing.T) {
	m, a := securePair(t)
	m.ready()
	other := startHost(t, "tq", secure(a, "tq"))
	spec := m.spec()
	spec.SourceAddress = other.PeerAddress()
	_, err := m.dh.control.Pull(background(t), spec, nil)
	wantCode(t, err, handoff.CodeDenied, handoff.CodeStaleIncarnation)
	m.neverVisible()
}
