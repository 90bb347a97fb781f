package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"

	"github.com/surehand/surehand/contracts/handoff"
)

// Role is what a caller may do.
type Role uint8

// Roles. Nobody is the zero value, which may do nothing.
const (
	RoleNobody   Role = iota
	RoleTenant        // submit, and look at and cancel its own handoffs
	RoleOperator      // act on every tenant's handoffs and on engines
	RoleFleet         // a gateway or worker: gives readers orders
)

func (r Role) String() string { return [...]string{"nobody", "tenant", "operator", "fleet"}[r] }

// Limits of one tenant; zero is none.
type Limits struct {
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	Burst             int     `yaml:"burst"`
	TokensInFlight    int64   `yaml:"tokens_in_flight"`
	MaxPromptBytes    int     `yaml:"max_prompt_bytes"`
}

// Caller is who calls, as far as it was proved.
type Caller struct {
	Role   Role
	Name   string // for audits: the tenant, the operator's name, or fleet
	Tenant string // of RoleTenant
	Salt   string // of the tenant's prefix caches
	Limits Limits
	// Believed: nobody was asked for credentials, and the caller may name any tenant.
	Believed bool
}

// Credentials are what came with a call. Peer is the certificate that TLS
// verified; nil: none.
type Credentials struct {
	Authorization string
	Peer          *x509.Certificate
}

// Authenticator tells who calls. Its refusals are CodeDenied.
type Authenticator interface {
	Caller(ctx context.Context, c Credentials) (Caller, error)
}

// Everybody believes every caller, in every role: for loopback, in dev.
type Everybody struct{}

// Caller implements Authenticator.
func (Everybody) Caller(context.Context, Credentials) (Caller, error) {
	return Caller{Role: RoleTenant, Name: "anyone", Believed: true}, nil
}

// May says whether the caller has the role.
func (c Caller) May(r Role) bool { return c.Believed || c.Role == r }

// For is the tenant that the caller speaks for, when it claims one: its own, or
// for an operator the one that it names.
func (c Caller) For(claimed, otherwise string) (string, error) {
	switch {
	case c.Believed && claimed == "":
		return otherwise, nil
	case c.Believed:
		return claimed, nil
	case c.Role == RoleOperator && claimed == "":
		return "", handoff.Errorf(handoff.CodeInvalid, "an operator names the tenant")
	case c.Role == RoleOperator:
		return claimed, nil
	case c.Role != RoleTenant:
		return "", handoff.Errorf(handoff.CodeDenied, "a %s has no tenant", c.Role)
	case claimed != "" && claimed != c.Tenant:
		return "", handoff.Errorf(handoff.CodeDenied, "the credentials do not speak for this tenant")
	}
	return c.Tenant, nil
}

// Digest of an API key, as the file holds it.
func Digest(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

type contextKey struct{}

// With carries the caller of a call.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// From is the caller of a call; Nobody when none was asked for.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(contextKey{}).(Caller)
	return c
}
