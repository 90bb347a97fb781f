package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/identity/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const domain = "kv.example"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newAuthority(t *testing.T) *authority.Authority {
	a, err := authority.New()
	check(t, err)
	return a
}

// bearer writes a certificate and gives its source.
func bearer(t *testing.T, a *authority.Authority, trust string, l authority.Leaf) (*identity.Source, identity.Files) {
	t.Helper()
	f, err := a.Write(t.TempDir(), "own", l)
	check(t, err)
	f.TrustDomain = trust
	s, err := identity.Open(f)
	check(t, err)
	return s, f
}

func uri(t *testing.T, role identity.Role, name string) authority.Leaf {
	t.Helper()
	u, err := identity.URI(domain, role, name)
	check(t, err)
	return authority.Leaf{URIs: []string{u.String()}}
}

// meet has a client and a server shake hands, and says whom the server saw.
func meet(t *testing.T, server, client *tls.Config) (seen handoff.NodeID, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { check(t, l.Close()) }()
	b, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	a, err := l.Accept()
	check(t, err)
	for _, c := range []net.Conn{a, b} {
		check(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	}
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("y"))
		}
		done <- errors.Join(err, a.Close())
	}()
	clientErr = c.Handshake()
	if clientErr == nil { // in TLS 1.3 the client learns by its first read that it was refused
		_, clientErr = c.Read(make([]byte, 1))
	}
	check(t, b.Close())
	serverErr = <-done
	return identity.Node(s.ConnectionState()), serverErr, clientErr
}

func dialling(s *identity.Source, node string) *tls.Config {
	c := s.TLS(identity.Daemon).Clone()
	c.ServerName = node
	return c
}

func TestDaemonsKnowEachOtherByTheirSPIFFEIds(t *testing.T) {
	a := newAuthority(t)
	p, _ := bearer(t, a, domain, uri(t, identity.Daemon, "tp"))
	d, _ := bearer(t, a, domain, uri(t, identity.Daemon, "td"))
	seen, serverErr, clientErr := meet(t, p.TLS(identity.Daemon), dialling(d, "tp"))
	check(t, serverErr)
	check(t, clientErr)
	if seen != "td" {
		t.Fatalf("the server saw %q", seen)
	}
	check(t, p.Names(identity.Daemon, "tp"))
	if err := p.Names(identity.Daemon, "tq"); handoff.CodeOf(err) != handoff.CodeDenied {
		t.Fatal(err)
	}
}

// Each of these certificates is refused by the server, although the authority is
// right in all but the first.
func TestACertificateIsGoodForItsOwnRoleDomainAndTimeOnly(t *testing.T) {
	a := newAuthority(t)
	p, _ := bearer(t, a, domain, uri(t, identity.Daemon, "tp"))
	two := uri(t, identity.Daemon, "td")
	two.URIs = append(two.URIs, "spiffe://kv.example/transferd/tq")
	expired := uri(t, identity.Daemon, "td")
	expired.Expired = true
	serverOnly := uri(t, identity.Daemon, "td")
	serverOnly.Uses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for name, l := range map[string]authority.Leaf{
		"stranger's authority": uri(t, identity.Daemon, "td"),
		"another trust domain": {URIs: []string{"spiffe://evil.example/transferd/td"}},
		"an orchestrator":      uri(t, identity.Orchestrator, "w1"),
		"two ids":              two,
		"no id, a DNS name":    {DNS: []string{"td"}},
		"a deeper path":        {URIs: []string{"spiffe://kv.example/transferd/td/admin"}},
		"an empty name":        {URIs: []string{"spiffe://kv.example/transferd/"}},
		"another scheme":       {URIs: []string{"https://kv.example/transferd/td"}},
		"a name out of bounds": {URIs: []string{"spiffe://kv.example/transferd/" + strings.Repeat("a", 200)}},
		"expired":              expired,
		"good for serving":     serverOnly,
	} {
		t.Run(name, func(t *testing.T) {
			signer := a
			if name == "stranger's authority" {
				signer = newAuthority(t)
			}
			cert, key, err := signer.Issue(l)
			check(t, err)
			pair, err := tls.X509KeyPair(cert, key)
			check(t, err)
			rogue := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
			_, serverErr, clientErr := meet(t, p.TLS(identity.Daemon), rogue)
			if serverErr == nil || clientErr == nil {
				t.Fatalf("accepted: %v, %v", serverErr, clientErr)
			}
		})
	}
	_, serverErr, _ := meet(t, p.TLS(identity.Daemon), &tls.Config{InsecureSkipVerify: true})
	if serverErr == nil {
		t.Fatal("nobody in particular was let in")
	}
}

// A daemon's certificate does not open control sides, an orchestrator's no peer side.
func TestTheControlSideIsForOrchestrators(t *testing.T) {
	a := newAuthority(t)
	p, _ := bearer(t, a, domain, uri(t, identity.Daemon, "tp"))
	d, _ := bearer(t, a, domain, uri(t, identity.Daemon, "td"))
	w, _ := bearer(t, a, domain, uri(t, identity.Orchestrator, "w1"))
	if _, serverErr, clientErr := meet(t, p.TLS(identity.Orchestrator), dialling(w, "tp")); serverErr != nil || clientErr != nil {
		t.Fatal(serverErr, clientErr)
	}
	if _, serverErr, _ := meet(t, p.TLS(identity.Orchestrator), dialling(d, "tp")); serverErr == nil {
		t.Fatal("a daemon may call the control side")
	}
}

func TestAClientTalksToTheDaemonItMeansOnly(t *testing.T) {
	a := newAuthority(t)
	d, _ := bearer(t, a, domain, uri(t, identity.Daemon, "td"))
	for name, l := range map[string]authority.Leaf{
		"another node": uri(t, identity.Daemon, "tq"), "an orchestrator of that name": uri(t, identity.Orchestrator, "tp"),
		"another trust domain": {URIs: []string{"spiffe://evil.example/transferd/tp"}, DNS: []string{"tp"}},
	} {
		cert, key, err := a.Issue(l)
		check(t, err)
		pair, err := tls.X509KeyPair(cert, key)
		check(t, err)
		_, _, clientErr := meet(t, &tls.Config{Certificates: []tls.Certificate{pair}}, dialling(d, "tp"))
		if handoff.CodeOf(clientErr) != handoff.CodeDenied {
			t.Errorf("%s: %v", name, clientErr)
		}
	}
	p, _ := bearer(t, a, domain, uri(t, identity.Daemon, "tp"))
	if _, _, clientErr := meet(t, p.TLS(identity.Daemon), dialling(d, "")); clientErr == nil {
		t.Fatal("it talks to anybody")
	}
}

func TestWithoutATrustDomainNodesAreNamedByDNS(t *testing.T) {
	a := newAuthority(t)
	p, _ := bearer(t, a, "", authority.Leaf{DNS: []string{"tp"}})
	d, _ := bearer(t, a, "", authority.Leaf{DNS: []string{"td"}})
	seen, serverErr, clientErr := meet(t, p.TLS(identity.Daemon), dialling(d, "tp"))
	check(t, serverErr)
	check(t, clientErr)
	if seen != "td" {
		t.Fatal(seen)
	}
	if _, _, clientErr := meet(t, p.TLS(identity.Daemon), dialling(d, "tq")); handoff.CodeOf(clientErr) != handoff.CodeDenied {
		t.Fatal(clientErr)
	}
}

// Certificate, key and authority change under a running source; the old ones are
// refused from then on. A rotation that is half way through changes nothing.
func TestCertificateAndAuthorityRotateWithoutARestart(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	p, pf := bearer(t, before, domain, uri(t, identity.Daemon, "tp"))
	d, df := bearer(t, before, domain, uri(t, identity.Daemon, "td"))
	server, client := p.TLS(identity.Daemon), dialling(d, "tp")
	works := func(what string, want bool) {
		t.Helper()
		_, serverErr, clientErr := meet(t, server, client)
		if (serverErr == nil && clientErr == nil) != want {
			t.Fatalf("%s: %v, %v", what, serverErr, clientErr)
		}
	}
	works("the old authority", true)
	for _, f := range []identity.Files{pf, df} {
		check(t, authority.Replace(f.CA, slices.Concat(before.PEM, after.PEM)))
	}
	works("both authorities", true)
	reissue := func(f identity.Files, node string) {
		cert, key, err := after.Issue(uri(t, identity.Daemon, node))
		check(t, err)
		check(t, authority.Replace(f.Cert, cert))
		works("a certificate without its key", true)
		check(t, authority.Replace(f.Key, key))
	}
	reissue(pf, "tp")
	works("a new server certificate", true)
	reissue(df, "td")
	works("two new certificates", true)
	check(t, os.WriteFile(pf.CA, []byte("half of it"), 0o600))
	works("half an authority", true)
	for _, f := range []identity.Files{pf, df} {
		check(t, authority.Replace(f.CA, after.PEM))
	}
	works("the new authority alone", true)
	cert, key, err := before.Issue(uri(t, identity.Daemon, "td"))
	check(t, err)
	check(t, errors.Join(authority.Replace(df.Cert, cert), authority.Replace(df.Key, key)))
	works("a certificate of the old authority", false)
}

func TestWhatIsNotWholeAtFirstDoesNotStart(t *testing.T) {
	a := newAuthority(t)
	_, f := bearer(t, a, domain, uri(t, identity.Daemon, "tp"))
	for name, change := range map[string]func(*identity.Files){
		"no key":           func(f *identity.Files) { f.Key = "" },
		"no authority":     func(f *identity.Files) { f.CA = f.Key },
		"no such file":     func(f *identity.Files) { f.Cert += ".gone" },
		"a wrong domain":   func(f *identity.Files) { f.TrustDomain = "spiffe://" },
		"a path as domain": func(f *identity.Files) { f.TrustDomain = "kv.example/transferd" },
	} {
		broken := f
		change(&broken)
		if _, err := identity.Open(broken); err == nil {
			t.Errorf("%s: it opened", name)
		}
	}
}
