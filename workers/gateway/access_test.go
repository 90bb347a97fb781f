package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/workers/access"
)

// file is an access file; KEY(x) in it is the digest of x.
func file(t *testing.T, text string) *access.File {
	t.Helper()
	text = regexp.MustCompile(`KEY\(([^)]*)\)`).ReplaceAllStringFunc(text, func(m string) string {
		sum := access.Digest(m[4 : len(m)-1])
		return `"sha256:` + fmt.Sprintf("%x", sum) + `"`
	})
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := access.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const everyRole = `
tenants: {blue: {keys: [KEY(sk-blue)]}, red: {keys: [KEY(sk-red)]}}
operators: {alice: {keys: [KEY(sk-alice)]}}
fleet: {keys: [KEY(sk-fleet)]}`

// operator does nothing: who reaches it has passed.
type operator struct{ Operate }

// roots of the HTTP side; a route that is added must be added here, see below.
var routes = []string{"POST /v1/completions", "POST /v1/chat/completions", "GET /v1/models", "GET /v1/models/tiny", "GET /metrics", "POST /v1/responses", "GET /v1/responses/resp_h-1", "POST /v1/responses/resp_h-1/cancel", "GET /v1/handoffs/h-1/events", "GET /nowhere", "GET /"}

// Every route and every method of every service, as the server itself lists
// them: nothing but health answers a caller without credentials, or with bad ones.
func TestNothingAnswersACallerWithoutCredentials(t *testing.T) {
	r := serve(t, newFront(), func(c *Config) { c.Access, c.Operate = file(t, everyRole), operator{} })
	for _, authorization := range []string{"", "Bearer sk-green", "Bearer ", "Basic sk-blue", "Bearer a.b.c"} {
		for _, route := range routes {
			method, path, _ := strings.Cut(route, " ")
			if got := r.status(t, method, path, authorization); got != http.StatusUnauthorized {
				t.Errorf("%s with %q: %d", route, authorization, got)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if got := r.status(t, "GET", path, authorization); got != http.StatusOK {
				t.Errorf("%s with %q: %d", path, authorization, got)
			}
		}
		r.methods(t, func(method string) {
			got := r.call(t, method, authorization)
			if open := strings.HasPrefix(method, openService); open == (got == codes.Unauthenticated) {
				t.Errorf("%s with %q: %s", method, authorization, got)
			}
		})
	}
}

// Each role gets what is its own and nothing else.
func TestNoRoleDoesWhatIsAnothers(t *testing.T) {
	r := serve(t, newFront(), func(c *Config) { c.Access, c.Operate = file(t, everyRole), operator{} })
	for key, may := range map[string]struct{ submit, reader, metrics bool }{
		"sk-blue": {true, false, false}, "sk-alice": {true, false, true}, "sk-fleet": {false, true, true},
	} {
		r.methods(t, func(method string) {
			operates := strings.HasPrefix(method, operatorPrefix)
			if operates && key == "sk-alice" {
				return // it is hers
			}
			denied := r.call(t, method, "Bearer "+key) == codes.PermissionDenied
			switch {
			case operates && !denied,
				strings.Contains(method, ".Reader/") && denied == may.reader,
				strings.Contains(method, ".Submit/") && denied == may.submit:
				t.Errorf("%s by %s: denied %v", method, key, denied)
			}
		})
		if got := r.status(t, "GET", "/metrics", "Bearer "+key); (got == 200) != may.metrics {
			t.Errorf("/metrics by %s: %d", key, got)
		}
	}
}

// What belongs to another tenant is not found: not even that it is there is told.
func TestAnotherTenantsHandoffIsNotFound(t *testing.T) {
	f := newFront()
	f.handoffs = map[string]*submitv1.Handoff{"h-1": {Handoff: "h-1", Status: "running"}}
	client := submitv1.NewSubmitClient(serve(t, f, func(c *Config) { c.Access = file(t, everyRole) }).dial(t))
	for key, want := range map[string]codes.Code{"sk-red": codes.NotFound, "sk-blue": codes.OK, "sk-alice": codes.OK} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
		_, get := client.Get(ctx, &submitv1.GetRequest{Handoff: "h-1", Tenant: "blue"})
		_, cancel := client.Cancel(ctx, &submitv1.CancelRequest{Handoff: "h-1", Tenant: "blue"})
		_, list := client.List(ctx, &submitv1.ListRequest{Tenant: "blue"})
		for what, err := range map[string]error{"get": get, "cancel": cancel, "list": list} {
			if status.Code(err) != want {
				t.Errorf("%s by %s: %v", what, key, err)
			}
		}
	}
}

func TestALargeHeaderIsRefusedWithAType(t *testing.T) {
	r := serve(t, newFront())
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`, "X-Filler", strings.Repeat("x", MaxHeaderBytes))
	o := read(t, all(t, res))
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge || o.Error.Code != "too_large" || *o.Error.Param != "header" || !strings.Contains(o.Error.Message, "32768") {
		t.Fatalf("%d %+v", res.StatusCode, o.Error)
	}
}

func TestATenantsOwnPromptLimitIsNamed(t *testing.T) {
	f := newFront()
	r := serve(t, f, func(c *Config) {
		c.Access = file(t, "tenants: {blue: {keys: [KEY(sk-blue)], max_prompt_bytes: 10, salt: ours}}")
	})
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"more than ten"}`, "Authorization", "Bearer sk-blue")
	o := read(t, all(t, res))
	if res.StatusCode != 413 || o.Error.Code != "too_large" || *o.Error.Param != "prompt" || !strings.Contains(o.Error.Message, "limit is 10") {
		t.Fatalf("%d %+v", res.StatusCode, o.Error)
	}
	all(t, r.post(t, "/v1/completions", `{"model":"tiny","prompt":"short"}`, "Authorization", "Bearer sk-blue"))
	if q := f.last(t); q.Tenant != "blue" || q.Salt != "salt:ours" {
		t.Fatalf("%+v", q)
	}
}

func (r *running) status(t *testing.T, method, path, authorization string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.http+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}
	res, err := r.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// methods are all that the server knows of, told by itself.
func (r *running) methods(t *testing.T, each func(string)) {
	t.Helper()
	n := 0
	for service, info := range r.Running.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			n++
			each("/" + service + "/" + m.Name)
		}
	}
	if n < 8 {
		t.Fatalf("the server lists %d methods", n)
	}
}

// call sends an empty message, which every method understands, and reads one answer.
func (r *running) call(t *testing.T, method, authorization string) codes.Code {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	}
	stream, err := r.dial(t).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err == nil {
		_ = stream.CloseSend()
	}
	return status.Code(stream.RecvMsg(&emptypb.Empty{}))
}
