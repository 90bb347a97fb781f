package guarded

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
)

const (
	issuerName = "https://id.example" // who it says it is; its keys are on loopback
	audience   = "surehand"
)

// signer is one signing key of an identity provider.
type signer struct {
	key *ecdsa.PrivateKey
	id  string
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{k, id}
}

// claims are those of a good token of a tenant, with changes.
func claims(tenant string, change map[string]any) map[string]any {
	out := map[string]any{"iss": issuerName, "aud": audience, "sub": "carol", "exp": time.Now().Add(time.Hour).Unix(), "org": tenant}
	for k, v := range change {
		out[k] = v
	}
	return out
}

func (s signer) token(t *testing.T, c map[string]any) string {
	t.Helper()
	return signed(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: s.id}}, c)
}

// confused is signed symmetrically, with what everybody knows of the key: the
// attack on verifiers that let the token choose.
func (s signer) confused(t *testing.T, c map[string]any) string {
	t.Helper()
	known, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: known, KeyID: s.id}}, c)
}

func signed(t *testing.T, by jose.SigningKey, c map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(by, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	text, err := w.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// unsigned says that nothing signs it.
func unsigned(t *testing.T, c map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	e := base64.RawURLEncoding
	return e.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + e.EncodeToString(raw) + "."
}

// provider serves the public half of its signers.
type provider struct {
	*httptest.Server
	mu      sync.Mutex
	signers []signer
	away    bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		var set jose.JSONWebKeySet
		for _, s := range p.signers {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: string(jose.ES256), Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set) // a gateway that left asks again
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) signsBy(s ...signer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signers = s
}

func (p *provider) goAway() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
}

// Tokens of an identity provider speak for the tenant that they name, on HTTP and
// on gRPC, at both gateways. Whatever is wrong with one, it is refused with a
// type, before any engine hears of it. The provider changes its keys, and nothing
// is started again; while it is away those that are known stay good.
func TestTokensOfAnIdentityProvider(t *testing.T) {
	g := shared(t)
	idp := newProvider(t)
	first, second, stranger := newSigner(t, "first"), newSigner(t, "second"), newSigner(t, "first")
	idp.signsBy(first)
	g.put(t, g.text+fmt.Sprintf("tokens: [{issuer: %q, audience: %s, keys_url: %q, tenant_claim: org, operator_claim: operates}]\n", issuerName, audience, idp.URL))

	g.keys["carol"] = first.token(t, claims(acme, nil))
	g.everywhere(t, "a token of a tenant", "carol", http.StatusOK, codes.OK)
	g.served(t, "carol")
	g.keys["olga"] = first.token(t, claims("", map[string]any{"operates": true, "org": nil}))
	for _, name := range []string{"g1", "g2"} {
		if code, text := g.call(t, name, "GET", "/metrics", "olga"); code != http.StatusOK {
			t.Errorf("an operator's token at %s: %d %.100s", name, code, text)
		}
	}

	m := g.Mark()
	hour := time.Now().Add(time.Hour).Unix()
	for what, token := range map[string]string{
		"over":                         first.token(t, claims(acme, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		"not yet good":                 first.token(t, claims(acme, map[string]any{"nbf": hour})),
		"without an end":               first.token(t, map[string]any{"iss": issuerName, "aud": audience, "sub": "carol", "org": acme}),
		"of another issuer":            first.token(t, claims(acme, map[string]any{"iss": "https://id.example.org"})),
		"for another audience":         first.token(t, claims(acme, map[string]any{"aud": "others"})),
		"of an unknown key":            second.token(t, claims(acme, nil)),
		"of another key, by that name": stranger.token(t, claims(acme, nil)),
		"unsigned":                     unsigned(t, claims(acme, nil)),
		"signed with the public key":   first.confused(t, claims(acme, nil)),
		"of no tenant":                 first.token(t, claims("", nil)),
		"of an unknown tenant":         first.token(t, claims("nobody", nil)),
		"whose operator is a text":     first.token(t, claims("", map[string]any{"operates": "true"})),
		"cut":                          g.keys["carol"][:len(g.keys["carol"])-3],
		"with other claims":            recut(t, g.keys["carol"], claims(other, nil)),
	} {
		g.keys["bad"] = token
		g.refused(t, "a token "+what, "bad")
	}
	if p := fault.Prefilled(g.Since(m)); len(p) > 0 {
		t.Errorf("refused, and computed: %v", p)
	}

	idp.signsBy(second) // the first is withdrawn
	g.keys["dave"] = second.token(t, claims(acme, nil))
	g.everywhere(t, "a token of a key that is new", "dave", http.StatusOK, codes.OK)
	g.everywhere(t, "a token of a key that is withdrawn", "carol", http.StatusUnauthorized, codes.Unauthenticated)
	g.refused(t, "a token of a key that is withdrawn", "carol")
	idp.goAway()
	g.served(t, "dave")

	for _, p := range g.Processes() {
		logged, err := os.ReadFile(filepath.Join(g.Dir, p.Name()+".log"))
		if what := g.silentText(string(logged)); err != nil || what != "" {
			t.Errorf("%s logs %q: %v", p.Name(), what, err)
		}
	}
}

// recut puts other claims below a token's signature.
func recut(t *testing.T, token string, c map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString(raw) + "." + parts[2]
}

// served asks both surfaces of both gateways for an answer.
func (g *guarded) served(t *testing.T, who string) {
	t.Helper()
	for _, name := range []string{"g1", "g2"} {
		if a := g.client(t, name).Send(withinOf(t, time.Minute), g.ask(who, secret, 5)); a.Counted(5) != nil {
			t.Errorf("%s at %s: %s", who, name, chaos.Verdict(a))
		}
		if err := g.submit(g.as(t, who), name, insecure.NewCredentials()); err != nil {
			t.Errorf("%s at %s, by gRPC: %v", who, name, err)
		}
	}
}

// refused asks both surfaces of both gateways for an answer that nobody gets.
func (g *guarded) refused(t *testing.T, what, who string) {
	t.Helper()
	for _, name := range []string{"g1", "g2"} {
		a := g.client(t, name).Send(withinOf(t, time.Minute), g.ask(who, secret, 5))
		if err := a.Typed(); err != nil || a.Status != http.StatusUnauthorized || a.Failure.Code != "invalid_api_key" {
			t.Errorf("%s, at %s: %d %s %v", what, name, a.Status, chaos.Verdict(a), err)
		}
		err := g.submit(g.as(t, who), name, insecure.NewCredentials())
		if status.Code(err) != codes.Unauthenticated || handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeDenied {
			t.Errorf("%s, at %s by gRPC: %v", what, name, err)
		}
	}
}

// submit reads one whole answer by gRPC.
func (g *guarded) submit(ctx context.Context, gateway string, by credentials.TransportCredentials) (err error) {
	conn, err := grpc.NewClient(g.GRPC[gateway], grpc.WithTransportCredentials(by))
	if err != nil {
		return err
	}
	defer func() {
		if failed := conn.Close(); err == nil {
			err = failed
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := submitv1.NewSubmitClient(conn).Submit(ctx, &submitv1.SubmitRequest{Model: g.Options.ModelName(), Prompt: secret, MaxTokens: 5})
	if err != nil {
		return err
	}
	finished := false
	for {
		e, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF) && finished:
			return nil
		case err != nil:
			return err
		}
		finished = finished || e.GetFinished() != nil
	}
}
