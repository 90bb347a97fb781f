package access

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/surehand/surehand/contracts/handoff"
)

// Limits of tokens.
const (
	maxTokenBytes  = 8 << 10
	maxKeySetBytes = 1 << 20
)

// signatures that a token may have: asymmetric ones only.
var signatures = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

func algorithms() (out []string) {
	for _, a := range signatures {
		out = append(out, string(a))
	}
	return out
}

// issuer is one identity provider of the file.
type issuer struct {
	Issuer        string `yaml:"issuer"`
	Audience      string `yaml:"audience"`
	KeysURL       string `yaml:"keys_url"`
	KeysFile      string `yaml:"keys_file"`
	TenantClaim   string `yaml:"tenant_claim"`
	OperatorClaim string `yaml:"operator_claim"`
}

// verifier checks the tokens of one issuer. go-oidc checks signature, issuer,
// audience and times; which claims mean what is ours.
type verifier struct {
	issuer
	check *oidc.IDTokenVerifier
}

func (i issuer) verifier() (*verifier, error) {
	switch {
	case i.Issuer == "" || i.Audience == "":
		return nil, handoff.Errorf(handoff.CodeInvalid, "an issuer of tokens needs issuer and audience")
	case (i.KeysURL == "") == (i.KeysFile == ""):
		return nil, handoff.Errorf(handoff.CodeInvalid, "issuer %s needs one of keys_url and keys_file", i.Issuer)
	case i.TenantClaim == "" && i.OperatorClaim == "":
		return nil, handoff.Errorf(handoff.CodeInvalid, "issuer %s names neither tenant_claim nor operator_claim", i.Issuer)
	case len(i.TenantClaim) > maxClaimBytes || len(i.OperatorClaim) > maxClaimBytes:
		return nil, handoff.Errorf(handoff.CodeTooLarge, "a claim's name of issuer %s is longer than %d bytes", i.Issuer, maxClaimBytes)
	}
	keys, err := i.keySet()
	if err != nil {
		return nil, err
	}
	return &verifier{i, oidc.NewVerifier(i.Issuer, keys, &oidc.Config{ClientID: i.Audience, SupportedSigningAlgs: algorithms()})}, nil
}

func (i issuer) keySet() (oidc.KeySet, error) {
	if i.KeysFile != "" {
		return staticKeys(i.KeysFile)
	}
	u, err := url.Parse(i.KeysURL)
	if err != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return nil, handoff.Errorf(handoff.CodeDenied, "keys_url of issuer %s is not https", i.Issuer)
	}
	return newRemoteKeys(i.KeysURL), nil
}

// staticKeys are those of a JWKS file.
func staticKeys(path string) (oidc.KeySet, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "keys_file: %s", err.Error())
	}
	set, err := publicKeys(raw)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "%s: %s", path, err.Error())
	}
	static := &oidc.StaticKeySet{}
	for _, k := range set {
		static.PublicKeys = append(static.PublicKeys, k.Key)
	}
	return static, nil
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// token finds who a signed token speaks for.
func (t *table) token(ctx context.Context, raw string) (Caller, error) {
	if len(raw) > maxTokenBytes || strings.Count(raw, ".") != 2 {
		return Caller{}, denied
	}
	for _, v := range t.issuers {
		token, err := v.check.Verify(ctx, raw)
		if err != nil {
			continue // of another issuer, or not good
		}
		var claims map[string]any
		if token.Claims(&claims) != nil {
			return Caller{}, denied
		}
		if on, is := claims[v.OperatorClaim].(bool); v.OperatorClaim != "" && is && on {
			return Caller{Role: RoleOperator, Name: token.Subject}, nil
		}
		name, _ := claims[v.TenantClaim].(string)
		if c, known := t.tenants[name]; v.TenantClaim != "" && known {
			return c, nil
		}
		return Caller{}, denied
	}
	return Caller{}, denied
}
