package gateway

import (
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/surehand/surehand/contracts/tracing"
)

const eventFirstToken = "first token"

// traced takes up the trace of a client's request, or begins one. It stands
// behind the guard: who may not call makes no trace. Only requests that submit
// or follow a handoff are traced.
func traced(next http.Handler) http.Handler {
	provider := tracing.Provider()
	if provider == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(tracing.Propagator()),
		otelhttp.WithFilter(func(r *http.Request) bool { return route(r) != "" }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return route(r) }))
}

// route names what is traced; a path may hold a client's words.
func route(r *http.Request) string {
	if r.Method != http.MethodPost {
		return ""
	}
	switch r.URL.Path {
	case "/v1/completions", "/v1/chat/completions", "/v1/responses":
		return r.Method + " " + r.URL.Path
	}
	return ""
}

// note says in the request's span whose handoff it is.
func note(ctx context.Context, tenant, handoff string) {
	s := tracing.Current(ctx)
	s.Text(tracing.KeyTenant, tenant)
	s.Text(tracing.KeyHandoff, handoff)
}
