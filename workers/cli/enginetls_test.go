package cli

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/identity/authority"
)

// Between hosts an engine takes orders from whom the authority named an
// orchestrator, and from nobody else.
func TestAnEngineBetweenHostsLetsInOrchestratorsOnly(t *testing.T) {
	ours, err := authority.New()
	if err != nil {
		t.Fatal(err)
	}
	strangers, err := authority.New()
	if err != nil {
		t.Fatal(err)
	}
	const domain = "fleet.example"
	leaf := func(path string) authority.Leaf {
		return authority.Leaf{URIs: []string{"spiffe://" + domain + "/" + path}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	}
	files, err := ours.Write(t.TempDir(), "engine", leaf("orchestrator/d1"))
	if err != nil {
		t.Fatal(err)
	}
	files.TrustDomain = domain
	own, err := (&engineTLS{files: files}).config("10.0.0.1:9000")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		by   *authority.Authority
		path string
		in   bool
	}{
		"a gateway": {ours, "orchestrator/g1", true}, "a daemon": {ours, "transferd/td1", false}, "a tenant": {ours, "caller/acme", false},
		"a gateway of another authority": {strangers, "orchestrator/g1", false}, "nobody": {nil, "", false},
	} {
		caller := &tls.Config{InsecureSkipVerify: true}
		if c.by != nil {
			cert, key, err := c.by.Issue(leaf(c.path))
			if err != nil {
				t.Fatal(err)
			}
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			caller.Certificates = []tls.Certificate{pair}
		}
		if err := meet(own, caller); (err == nil) != c.in {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// meet gives what a server's side of a handshake says.
func meet(server, client *tls.Config) error {
	a, b := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(tls.Server(a, server).Handshake(), a.Close())
	}()
	c := tls.Client(b, client)
	if c.Handshake() == nil {
		_, _ = c.Read(make([]byte, 1)) // in TLS 1.3 a client is refused by its first read
	}
	return errors.Join(<-done, b.Close())
}

func TestAnEnginesTLSIsWholeOrRefused(t *testing.T) {
	for listen, e := range map[string]engineTLS{
		"10.0.0.1:1": {files: identity.Files{Cert: "c", Key: "k"}}, "10.0.0.1:2": {files: identity.Files{TrustDomain: "d"}}, "0.0.0.0:3": {}, ":4": {}, "[::]:5": {},
		"10.0.0.1:6": {files: identity.Files{Cert: "/none", Key: "/none", CA: "/none"}},
	} {
		if _, err := e.config(listen); err == nil {
			t.Errorf("%s: %+v", listen, e)
		}
	}
	if c, err := (&engineTLS{}).config("127.0.0.1:0"); c != nil || err != nil {
		t.Error("clear text on loopback: ", c, err)
	}
	if _, err := (&engineTLS{advertise: "d1.example:9000"}).config("0.0.0.0:9000"); err != nil && !strings.Contains(err.Error(), "advertise") {
		t.Error(err) // refengine refuses clear text there, by itself
	}
}
