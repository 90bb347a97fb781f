package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func digest(key string) string {
	d := Digest(key)
	return digestPrefix + hex.EncodeToString(d[:])
}

func open(t *testing.T, text string) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.yaml")
	write(t, path, text)
	f, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f, path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *File) by(t *testing.T, c Credentials) (Caller, error) {
	t.Helper()
	got, err := f.Caller(t.Context(), c)
	if err != nil && handoff.CodeOf(err) != handoff.CodeDenied {
		t.Fatalf("a refusal is %v", err)
	}
	return got, err
}

func TestAKeyIsKnownByItsDigest(t *testing.T) {
	f, _ := open(t, "tenants:\n  blue:\n    keys: ["+digest("sk-1")+"]\n    requests_per_second: 5\noperators:\n  alice: {keys: ["+digest("sk-2")+"]}\nfleet: {keys: ["+digest("sk-3")+"]}\n")
	for key, want := range map[string]Caller{
		"Bearer sk-1": {Role: RoleTenant, Name: "blue", Tenant: "blue", Salt: "tenant:blue", Limits: Limits{RequestsPerSecond: 5, Burst: 5}},
		"bearer sk-2": {Role: RoleOperator, Name: "alice"}, "Bearer sk-3": {Role: RoleFleet, Name: "fleet"},
	} {
		if got, err := f.by(t, Credentials{Authorization: key}); err != nil || got != want {
			t.Errorf("%s: %+v %v", key, got, err)
		}
	}
	for _, bad := range []string{"", "sk-1", "Basic sk-1", "Bearer sk-4", "Bearer " + digest("sk-1")} {
		if got, err := f.by(t, Credentials{Authorization: bad}); err == nil {
			t.Errorf("%q is let in as %+v", bad, got)
		}
	}
}

func TestAFileThatIsNoGoodIsRefusedAndNeverQuoted(t *testing.T) {
	key := digest("secret-1")
	for name, text := range map[string]string{
		"empty": "", "nobody": "tenants: {blue: {}}", "a key in clear": "tenants: {blue: {keys: [sk-secret]}}", "an unknown field": "tenants: {blue: {kees: [sk-secret]}}",
		"a bad name": "tenants: {BLUE: {keys: [" + key + "]}}", "one key for two": "tenants: {blue: {keys: [" + key + "]}, red: {keys: [" + key + "]}}",
		"anonymous nobody": "anonymous: blue\ntenants: {red: {keys: [" + key + "]}}", "no YAML": "{sk-secret",
		"a negative limit": "tenants: {blue: {keys: [" + key + "], tokens_in_flight: -1}}", "tokens without keys": "tokens: [{issuer: a, audience: b, tenant_claim: c}]",
		"keys in clear text": "tokens: [{issuer: a, audience: b, tenant_claim: c, keys_url: 'http://id.example/keys'}]",
	} {
		if _, err := parse([]byte(text)); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnonymousCallersAreLetInWhereTheFileSaysSo(t *testing.T) {
	f, _ := open(t, "anonymous: dev\ntenants: {dev: {}, blue: {keys: ["+digest("sk-1")+"]}}")
	if got, err := f.by(t, Credentials{}); err != nil || got.Tenant != "dev" {
		t.Error(got, err)
	}
	if got, err := f.by(t, Credentials{Authorization: "Bearer sk-2"}); err == nil {
		t.Errorf("a bad key became %+v", got)
	}
}

func TestAChangedFileIsReadAgainAndABadOneIsNot(t *testing.T) {
	f, path := open(t, "tenants: {blue: {keys: ["+digest("sk-1")+"]}}")
	lets := func(key string) bool {
		_, err := f.by(t, Credentials{Authorization: "Bearer " + key})
		return err == nil
	}
	write(t, path, "tenants: {blue: {keys: ["+digest("sk-2")+"]}} # rotated")
	f.again()
	if lets("sk-1") || !lets("sk-2") {
		t.Fatal("the new key is not in force, or the old one is")
	}
	write(t, path, "tenants: {")
	f.again()
	if !lets("sk-2") {
		t.Fatal("a bad file took a good key's right")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.again()
	if !lets("sk-2") || lets("sk-1") {
		t.Fatal("a file that is away changed something")
	}
}

func TestACertificateIsKnownByItsNames(t *testing.T) {
	f, _ := open(t, "tenants: {blue: {certificates: ['spiffe://x/blue']}}\nfleet: {certificates: [gw.example]}")
	spiffe, _ := url.Parse("spiffe://x/blue")
	for want, c := range map[string]*x509.Certificate{
		"blue": {URIs: []*url.URL{spiffe}, Subject: pkix.Name{CommonName: "gw.example"}}, "fleet": {Subject: pkix.Name{CommonName: "gw.example"}},
		"": {Subject: pkix.Name{CommonName: "spiffe://x/red"}},
	} {
		if got, err := f.by(t, Credentials{Peer: c}); got.Name != want || (err == nil) != (want != "") {
			t.Errorf("%q: %+v %v", want, got, err)
		}
	}
}

// provider signs tokens.
type provider struct {
	key *ecdsa.PrivateKey
	id  string
}

func newProvider(t *testing.T, id string) provider {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return provider{k, id}
}

func (p provider) set(t *testing.T) []byte {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: p.id, Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (p provider) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: p.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	full := map[string]any{"iss": "https://id", "aud": "surehand", "sub": "carol", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range claims {
		full[k] = v
	}
	raw, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestASignedTokenSpeaksForItsTenant(t *testing.T) {
	p := newProvider(t, "k1")
	served := p.set(t)
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(served) }))
	defer idp.Close()
	keys := filepath.Join(t.TempDir(), "jwks.json")
	write(t, keys, string(served))
	for _, from := range []string{"keys_file: " + keys, "keys_url: " + idp.URL} {
		f, _ := open(t, fmt.Sprintf("tenants: {blue: {salt: s}}\ntokens: [{issuer: 'https://id', audience: surehand, tenant_claim: org, operator_claim: ops, %s}]", from))
		for name, c := range map[string]struct {
			token, want string
		}{
			"good":             {p.sign(t, map[string]any{"org": "blue"}), "blue"},
			"an operator":      {p.sign(t, map[string]any{"ops": true}), "carol"},
			"no operator":      {p.sign(t, map[string]any{"ops": "true"}), ""},
			"unknown tenant":   {p.sign(t, map[string]any{"org": "red"}), ""},
			"no tenant":        {p.sign(t, nil), ""},
			"over":             {p.sign(t, map[string]any{"org": "blue", "exp": time.Now().Add(-time.Hour).Unix()}), ""},
			"not yet":          {p.sign(t, map[string]any{"org": "blue", "nbf": time.Now().Add(time.Hour).Unix()}), ""},
			"another audience": {p.sign(t, map[string]any{"org": "blue", "aud": "else"}), ""},
			"another issuer":   {p.sign(t, map[string]any{"org": "blue", "iss": "https://else"}), ""},
			"another's key":    {newProvider(t, "k1").sign(t, map[string]any{"org": "blue"}), ""},
			"unsigned":         {"eyJhbGciOiJub25lIn0." + strings.Split(p.sign(t, map[string]any{"org": "blue"}), ".")[1] + ".", ""},
		} {
			got, err := f.by(t, Credentials{Authorization: "Bearer " + c.token})
			if got.Name != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%s, %s: %+v %v", from, name, got, err)
			}
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// A key that its provider withdrew is believed until what was fetched is old, though
// nobody shows a new one; while the provider is away what is known stays good.
func TestAWithdrawnKeyIsNotBelievedForLong(t *testing.T) {
	p, away := newProvider(t, "k1"), false
	served := p.set(t)
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(served)
	}))
	defer idp.Close()
	r, now := newRemoteKeys(idp.URL), time.Now()
	r.now = func() time.Time { return now }
	token := p.sign(t, map[string]any{"org": "blue"})
	believed := func() bool {
		_, err := r.VerifySignature(t.Context(), token)
		return err == nil
	}
	if !believed() {
		t.Fatal("a good one is not")
	}
	now = now.Add(keysFor + time.Second)
	if !believed() {
		t.Fatal("a good one is not believed once it was fetched anew")
	}
	away, now = true, now.Add(keysFor+time.Second)
	if !believed() {
		t.Fatal("the provider is away, and a key that is known is not believed")
	}
	now = now.Add(keysMost)
	if believed() {
		t.Error("a key is believed though its provider was away for more than a day")
	}
	now = now.Add(-keysMost)
	away, served = false, newProvider(t, "k2").set(t)
	if !believed() {
		t.Fatal("it was asked again at once")
	}
	r.limit.SetLimit(rate.Inf) // it goes by the real clock
	if now = now.Add(keysAgain + time.Second); believed() {
		t.Error("a withdrawn key is believed")
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// Made-up key ids do not have the keys fetched at will.
func TestStrangersCannotHaveTheKeysFetchedAtWill(t *testing.T) {
	p, fetched := newProvider(t, "k1"), 0
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fetched++; _, _ = w.Write(p.set(t)) }))
	defer idp.Close()
	f, _ := open(t, "tenants: {blue: {}}\ntokens: [{issuer: 'https://id', audience: surehand, tenant_claim: org, keys_url: '"+idp.URL+"'}]")
	for i := range 100 {
		if got, err := f.by(t, Credentials{Authorization: "Bearer " + newProvider(t, fmt.Sprint(i)).sign(t, map[string]any{"org": "blue"})}); err == nil {
			t.Fatal(got)
		}
	}
	if fetched > 2*keysFetchAtOnce {
		t.Errorf("a hundred strangers had the keys fetched %d times", fetched)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("anonymous: dev\ntenants: {dev: {}}"))
	f.Add([]byte("tokens: [{issuer: a, audience: b, keys_file: /dev/null}]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if strings.Contains(string(raw), "keys_file") {
			t.Skip("reads files")
		}
		got, err := parse(raw)
		if err != nil {
			return
		}
		if len(got.keys)+len(got.peers)+len(got.issuers) == 0 && got.anonymous == nil {
			t.Fatal("a file that lets nobody in is taken")
		}
		callers := slices.AppendSeq(slices.Collect(maps.Values(got.keys)), maps.Values(got.peers))
		if got.anonymous != nil {
			if got.anonymous.Role != RoleTenant {
				t.Fatalf("whoever says nothing is %+v", *got.anonymous)
			}
			callers = append(callers, *got.anonymous)
		}
		for _, c := range callers {
			if tenant, known := got.tenants[c.Tenant]; c.Role == RoleNobody || c.Name == "" || c.Believed || (c.Role == RoleTenant) != known || known && c != tenant {
				t.Fatalf("a caller is %+v", c)
			}
		}
	})
}
