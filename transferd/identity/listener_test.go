package identity_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/identity/authority"
)

// caller shows a certificate of a, or none.
func caller(t *testing.T, a *authority.Authority) *tls.Config {
	t.Helper()
	c := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	if a != nil {
		cert, key, err := a.Issue(authority.Leaf{})
		check(t, err)
		pair, err := tls.X509KeyPair(cert, key)
		check(t, err)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // whomever it is asked for
	}
	return c
}

func TestAListenerTakesCertificatesOfItsAuthorityAndMayTakeNone(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	files, err := ours.Write(t.TempDir(), "own", authority.Leaf{})
	check(t, err)
	plain := files
	plain.CA = ""
	for name, c := range map[string]struct {
		files              identity.Files
		must               bool
		ours, others, none bool
	}{
		"must":         {files, true, true, false, false},
		"may":          {files, false, true, false, true},
		"no authority": {plain, false, true, true, true},
	} {
		server, err := identity.Listener(c.files, c.must, "h2")
		check(t, err)
		for who, x := range map[string]struct {
			a    *authority.Authority
			want bool
		}{"one of ours": {ours, c.ours}, "one of others": {others, c.others}, "nobody": {nil, c.none}} {
			if _, serverErr, clientErr := meet(t, server, caller(t, x.a)); (serverErr == nil && clientErr == nil) != x.want {
				t.Errorf("%s, %s: %v, %v", name, who, serverErr, clientErr)
			}
		}
	}
}

// All three files of a listener change under it.
func TestAListenersFilesRotateWithoutARestart(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	files, err := before.Write(t.TempDir(), "own", authority.Leaf{})
	check(t, err)
	server, err := identity.Listener(files, true)
	check(t, err)
	works := func(what string, a *authority.Authority, want bool) {
		t.Helper()
		if _, serverErr, clientErr := meet(t, server, caller(t, a)); (serverErr == nil && clientErr == nil) != want {
			t.Fatalf("%s: %v, %v", what, serverErr, clientErr)
		}
	}
	works("the old authority", before, true)
	works("the new one, too early", after, false)
	check(t, os.WriteFile(files.CA, []byte("half of it"), 0o600))
	works("half an authority", before, true)
	check(t, authority.Replace(files.CA, after.PEM))
	works("the new authority", after, true)
	works("the old one, too late", before, false)
	cert, key, err := after.Issue(authority.Leaf{})
	check(t, err)
	check(t, authority.Replace(files.Cert, cert))
	works("a certificate without its key", after, true)
	check(t, authority.Replace(files.Key, key))
	now, err := server.GetConfigForClient(nil)
	check(t, err)
	if again, err := server.GetConfigForClient(nil); err != nil || again != now {
		t.Fatal("each connection has a config, and so tickets, of its own: ", err)
	}
	fresh, err := tls.X509KeyPair(cert, key)
	check(t, err)
	if string(now.Certificates[0].Certificate[0]) != string(fresh.Certificate[0]) {
		t.Fatal("the old certificate is still shown")
	}
	check(t, os.Remove(files.Key))
	works("a key that is away for a moment", after, true)
}

func TestAListenerWithoutWholeFilesDoesNotStart(t *testing.T) {
	files, err := newAuthority(t).Write(t.TempDir(), "own", authority.Leaf{})
	check(t, err)
	for _, spoil := range []func(*identity.Files){
		func(f *identity.Files) { f.Cert = "" },
		func(f *identity.Files) { f.Key = f.Cert },
		func(f *identity.Files) { f.CA = f.Key },
	} {
		bad := files
		spoil(&bad)
		if _, err := identity.Listener(bad, false); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if _, err := identity.Pair(files.Cert, files.CA); err == nil {
		t.Error("a pair without its key is taken")
	}
}

func TestWhatIsShownIsForCallersWithACertificate(t *testing.T) {
	ours := newAuthority(t)
	files, err := ours.Write(t.TempDir(), "own", authority.Leaf{})
	check(t, err)
	secure, err := identity.Listener(files, false, "http/1.1")
	check(t, err)
	h := identity.Shown(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	tlsServer := httptest.NewUnstartedServer(h)
	tlsServer.TLS = secure
	tlsServer.StartTLS()
	defer tlsServer.Close()
	clear := httptest.NewServer(h)
	defer clear.Close()
	for _, c := range []struct {
		url  string
		a    *authority.Authority
		want int
	}{{clear.URL, nil, http.StatusOK}, {tlsServer.URL, nil, http.StatusForbidden}, {tlsServer.URL, ours, http.StatusOK}} {
		shows := caller(t, c.a)
		shows.NextProtos = nil
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: shows, DisableKeepAlives: true}}
		r, err := web.Get(c.url)
		check(t, err)
		check(t, r.Body.Close())
		if r.StatusCode != c.want {
			t.Errorf("%s, with a certificate %v: %d", c.url, c.a != nil, r.StatusCode)
		}
	}
}
