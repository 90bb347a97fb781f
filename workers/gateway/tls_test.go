package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
)

// selfSigned writes a certificate that is its own CA, and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fleet"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", signed), write("key.pem", "EC PRIVATE KEY", secret)
}

func TestWithAClientCAStrangersGetNothing(t *testing.T) { strangers(t, false) }

// Where callers have keys a gateway of a fleet, whose gRPC is for certificates only,
// serves clients that have none over HTTP, and a balancer's probes.
func TestWhereCallersHaveKeysHTTPTakesThemWithoutACertificate(t *testing.T) { strangers(t, true) }

func strangers(t *testing.T, keyed bool) {
	cert, key := selfSigned(t)
	// Off loopback this is what a listener needs, and all it needs.
	l, err := Listen{HTTP: "0.0.0.0:0", GRPC: "0.0.0.0:0", Cert: cert, Key: key, ClientCA: cert, Keyed: keyed}.Open()
	if err != nil {
		t.Fatal(err)
	}
	_, httpPort, _ := net.SplitHostPort(l.HTTP())
	_, grpcPort, _ := net.SplitHostPort(l.GRPC())
	g, err := New(Config{Front: newFront(), Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	running := g.Serve(l)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	for _, c := range []struct {
		name  string
		certs []tls.Certificate
		known bool
	}{{"a stranger", nil, false}, {"one of the fleet", []tls.Certificate{pair}, true}} {
		secure := &tls.Config{RootCAs: roots, Certificates: c.certs, MinVersion: tls.VersionTLS13}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
		res, err := client.Get("https://127.0.0.1:" + httpPort + "/healthz")
		if (err == nil) != (c.known || keyed) {
			t.Errorf("%s over HTTP: %v", c.name, err)
		}
		if err == nil {
			res.Body.Close()
		}
		conn, err := grpc.NewClient("127.0.0.1:"+grpcPort, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = submitv1.NewSubmitClient(conn).List(t.Context(), &submitv1.ListRequest{})
		if want := map[bool]codes.Code{true: codes.OK, false: codes.Unavailable}[c.known]; status.Code(err) != want {
			t.Errorf("%s over gRPC: %v", c.name, err)
		}
		conn.Close()
	}
	if err := running.Drain(); err != nil {
		t.Fatal(err)
	}
}
