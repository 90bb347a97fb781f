package gateway

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/payload"
	"github.com/surehand/surehand/workers/ui"
)

// Who may call what, on both ports. What is not listed is for tenants and
// operators, so that nothing new is open by being forgotten.
var (
	openPaths   = open("/healthz", "/readyz")
	metricsPath = "/metrics" // for operators, and for a fleet's own scraper

	openService    = "/grpc.health.v1.Health/"
	fleetServices  = []string{"/surehand.submit.v1.Reader/"}
	operatorPrefix = "/surehand.operate.v1."
)

// open are paths that hold nothing: the page at /ui/ asks with its caller's key.
func open(paths ...string) map[string]bool {
	out := map[string]bool{}
	for _, p := range append(paths, ui.Pages...) {
		out[p] = true
	}
	return out
}

// unauthenticated is what a caller without good credentials is told, whatever it
// asked for.
func unauthenticated(cause error) error {
	return &refusal{cause: asRefusal(cause).cause, name: "invalid_api_key", status: http.StatusUnauthorized}
}

// authenticate finds the caller, and whether it has one of the roles.
func (g *Gateway) authenticate(ctx context.Context, c access.Credentials, roles ...access.Role) (access.Caller, error) {
	by, err := g.Access.Caller(ctx, c)
	if err != nil {
		return by, unauthenticated(err)
	}
	for _, r := range roles {
		if by.May(r) {
			return by, nil
		}
	}
	return by, handoff.Errorf(handoff.CodeDenied, "this is not for a %s", by.Role)
}

// guard lets a request through with its caller in its context.
func (g *Gateway) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := headerFits(r); err != nil {
			asRefusal(err).write(w, "")
			return
		}
		if openPaths[r.URL.Path] || strings.HasPrefix(r.URL.Path, payload.Path+"/") { // whose handlers ask by themselves
			next.ServeHTTP(w, r)
			return
		}
		c := access.Credentials{Authorization: r.Header.Get("Authorization")}
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			c.Peer = r.TLS.PeerCertificates[0]
		}
		roles := []access.Role{access.RoleTenant, access.RoleOperator}
		if r.URL.Path == metricsPath {
			roles = []access.Role{access.RoleOperator, access.RoleFleet}
		}
		by, err := g.authenticate(r.Context(), c, roles...)
		if err != nil {
			asRefusal(err).write(w, "")
			return
		}
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), by)))
	})
}

// headerFits refuses with a type what net/http would refuse without one; the
// server itself reads a little more.
func headerFits(r *http.Request) error {
	size := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + 4
		}
	}
	if size > MaxHeaderBytes {
		return &refusal{cause: handoff.Errorf(handoff.CodeTooLarge, "the header has %d bytes, the limit is %d", size, MaxHeaderBytes),
			param: "header", status: http.StatusRequestHeaderFieldsTooLarge}
	}
	return nil
}

// identify is guard for gRPC.
func (g *Gateway) identify(ctx context.Context, method string) (context.Context, error) {
	if strings.HasPrefix(method, openService) {
		return ctx, nil
	}
	var c access.Credentials
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		c.Authorization = values[0]
	}
	if p, ok := peer.FromContext(ctx); ok {
		if secure, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(secure.State.VerifiedChains) > 0 {
			c.Peer = secure.State.PeerCertificates[0]
		}
	}
	by, err := g.authenticate(ctx, c, rolesOf(method)...)
	if err != nil {
		return ctx, err
	}
	return access.With(ctx, by), nil
}

func rolesOf(method string) []access.Role {
	for _, prefix := range fleetServices {
		if strings.HasPrefix(method, prefix) {
			return []access.Role{access.RoleFleet}
		}
	}
	if strings.HasPrefix(method, operatorPrefix) {
		return []access.Role{access.RoleOperator}
	}
	return []access.Role{access.RoleTenant, access.RoleOperator}
}

// known is a stream whose caller is known.
type known struct {
	grpc.ServerStream
	ctx context.Context
}

func (s known) Context() context.Context { return s.ctx }

func (g *Gateway) streaming(srv any, ss grpc.ServerStream, call *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, err := g.identify(ss.Context(), call.FullMethod)
	if err != nil {
		return typed(err)
	}
	return typed(handle(srv, known{ss, ctx}))
}
