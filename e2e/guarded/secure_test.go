package guarded

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
)

// lets says, of each kind of listener off loopback, whose certificate gets past
// the handshake; every other one of the same authority is refused there. A
// gateway's callers are told apart behind it, by the access file.
var lets = map[string]string{"http": "caller/acme", "grpc": "caller/acme", "engine": "orchestrator/g9", "control": "orchestrator/g9", "peer": "transferd/tx"}

// A fleet between hosts: whatever listens off loopback speaks TLS, and nothing
// else, to those who show a certificate of its authority, of the right role; over HTTP
// also to those who show none, for which there are keys. Behind it, who is nobody's caller is refused everywhere, and another tenant's
// handoff is not there. What asks nobody is on loopback, and on the list.
func TestEveryPortOffLoopbackWantsACertificate(t *testing.T) {
	o := chaos.Options()
	o.Secure = true
	g := open(t, o)
	all, err := g.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	purposes := g.Purposes()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	off := 0
	noise(t, slices.DeleteFunc(slices.Clone(all), offLoopback))
	for _, l := range all {
		purpose := purposes[l.Address]
		if purpose == "" && l.Process == fleet.Temporal {
			purpose = "inside"
		}
		verdict := ""
		if offLoopback(l) {
			off++
			verdict = g.closed(t, l, purpose)
		} else if lets[purpose] != "" {
			t.Errorf("%s of %s is at %s", purpose, l.Process, l.Address)
		} else {
			verdict = g.scan(t, l, purpose)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Process, l.Network, purpose, verdict)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	if want := 2*2 + 3*4; off != want {
		t.Errorf("%d listeners off loopback, want %d", off, want)
	}
	t.Logf("%d listeners, %d of them off loopback\n%s", len(all), off, table.String())

	a := g.client(t, "g1").Send(t.Context(), g.ask(acme, secret, 5))
	if a.Counted(5) != nil {
		t.Fatal(chaos.Verdict(a))
	}
	for who, want := range map[string]codes.Code{acme: codes.OK, other: codes.OK, "whoever": codes.Unauthenticated} { // by certificate alone
		c, err := g.Secured("caller/"+who, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.submit(t.Context(), "g2", credentials.NewTLS(c)); status.Code(err) != want {
			t.Errorf("%s submits by gRPC: %v, want %s", who, err, want)
		}
	}
	for key, want := range map[string]int{g.keys[acme]: http.StatusOK, "": http.StatusUnauthorized} {
		if got := g.keyed(t, key); got != want {
			t.Errorf("without a certificate, with the key %q: %d, want %d", key, got, want)
		}
	}
	for who, want := range map[string]int{acme: http.StatusOK, other: http.StatusNotFound, "whoever": http.StatusUnauthorized} {
		c := g.web(t, "caller/"+who, false)
		r, err := c.Get("https://" + g.HTTP["g1"] + "/v1/handoffs/" + a.Handoff + "/events")
		if err != nil {
			t.Error(err)
			continue
		}
		text, err := io.ReadAll(r.Body)
		if gone := want == http.StatusNotFound && r.StatusCode == http.StatusGone; err != nil || r.StatusCode != want && !gone || want != http.StatusOK && strings.Contains(string(text), "w0") {
			t.Errorf("%s asks for acme's handoff: %d %.200s %v", who, r.StatusCode, text, err)
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
		c.CloseIdleConnections()
	}
}

func offLoopback(l fleet.Listener) bool {
	at, err := netip.ParseAddrPort(l.Address)
	return l.Network == "tcp" && err == nil && !at.Addr().IsLoopback()
}

// keyed asks a gateway over HTTPS with a key, or none, and no certificate.
func (g *guarded) keyed(t *testing.T, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+g.HTTP["g1"]+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: g.shows(t, "", false)}}
	answer, err := c.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	return answer.StatusCode
}

// closed tries every way past a listener's handshake that must fail, and the one
// that must not.
func (g *guarded) closed(t *testing.T, l fleet.Listener, purpose string) string {
	t.Helper()
	if lets[purpose] == "" {
		t.Errorf("%s listens at %s, where others reach it, and nobody says what for", l.Process, l.Address)
		return ""
	}
	c, err := net.Dial("tcp", l.Address)
	if err != nil {
		t.Error(err)
		return ""
	}
	if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("\xff", 64))); err != nil {
		t.Error(err)
	}
	ended(t, l, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	wrong := map[string]string{"engine": "transferd/td1", "control": "transferd/td1", "peer": "orchestrator/g1"}[purpose]
	bad := map[string]*tls.Config{"of another authority": g.shows(t, lets[purpose], true)}
	if nobody := g.shows(t, "", false); purpose != "http" {
		bad["without a certificate"] = nobody
	} else if err := handshake(t, l, nobody); err != nil { // a tenant with a key, a balancer's probe
		t.Errorf("%s (%s) refuses whoever has no certificate: %s", l.Process, purpose, err)
	}
	if wrong != "" {
		bad["of another role"] = g.shows(t, wrong, false)
	}
	for who, bad := range bad {
		if err := handshake(t, l, bad); err == nil {
			t.Errorf("%s (%s) lets in a caller %s", l.Process, purpose, who)
		}
	}
	if err := handshake(t, l, g.shows(t, lets[purpose], false)); err != nil {
		t.Errorf("%s (%s) refuses %s: %s", l.Process, purpose, lets[purpose], err)
	}
	switch purpose {
	case "http":
		return fmt.Sprintf("TLS; behind it %d routes refused", g.routes(t, l.Address))
	case "grpc":
		return fmt.Sprintf("mutual TLS; behind it %d methods refused", g.methods(t, l.Address))
	}
	return "mutual TLS, for " + strings.Split(lets[purpose], "/")[0] + "s only"
}

// shows is a caller with the certificate of a path; with an empty one it shows none.
func (g *guarded) shows(t *testing.T, path string, stranger bool) *tls.Config {
	t.Helper()
	c, err := g.Secured(path, stranger)
	if err != nil {
		t.Fatal(err)
	}
	c.InsecureSkipVerify = true // whom the caller believes is not what is asked here
	c.NextProtos = []string{"h2", "http/1.1"}
	shown := c.Certificates[0]
	c.Certificates = nil
	if path != "" { // also to who asks for another authority's
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
	}
	return c
}

// handshake succeeds when the other side has not refused soon after it: with TLS
// 1.3 a client learns of its refusal by its first read.
func handshake(t *testing.T, l fleet.Listener, c *tls.Config) error {
	t.Helper()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: c}).DialContext(withinOf(t, 20*time.Second), "tcp", l.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if n, ok := err.(net.Error); err == nil || ok && n.Timeout() {
		return nil
	}
	return err
}
