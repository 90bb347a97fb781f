package guarded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
)

// trusted are the kinds of listeners that ask nobody who they are, with the
// reason; the scan checks that they are where only this host reaches them. Off
// loopback each of them refuses to listen without mutual TLS, or at all.
var trusted = map[string]string{
	"engine":  "an engine's orders come from gateways of this host; off loopback it asks for a certificate of an orchestrator (TestEveryPortOffLoopbackWantsACertificate)",
	"control": "a daemon off loopback asks for a certificate of an orchestrator (transferd/cmd/transferd: TLS)",
	"peer":    "reads need a capability; a daemon off loopback asks for its peers' certificates",
	"metrics": "numbers without a prompt or a key in them (checked below)",
	"redis":   "the embedder's own: off loopback only by TLS, and then with the URL's password",
	"inside":  "Temporal's services among themselves; a server for several hosts is not ours (deploy/temporal)",

	"temporal": "the embedded server is for one host; elsewhere TLS and an API key (--temporal-…)",
}

// secret is a prompt that may stand nowhere.
const secret = "the-launch-code-is-4711"

// Every socket that any process of the fleet accepts on is found in the kernel's
// own tables; each refuses callers without credentials, or is on the list above.
func TestEveryPortOfEveryProcessIsGuardedOrListed(t *testing.T) {
	g := shared(t)
	if a := g.client(t, "g1").Send(t.Context(), g.ask(acme, secret, 5)); a.Whole() != nil {
		t.Fatal(chaos.Verdict(a))
	}
	all, err := g.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	purposes := g.Purposes()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	noise(t, all)
	for _, l := range all {
		purpose := purposes[l.Address]
		if purpose == "" && l.Process == fleet.Temporal {
			purpose = "inside"
		}
		verdict := g.scan(t, l, purpose)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Process, l.Network, purpose, verdict)
		delete(purposes, l.Address)
	}
	if len(purposes) > 0 {
		t.Errorf("the scan did not find %v", purposes)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	t.Logf("%d listeners\n%s", len(all), table.String())
	for _, p := range g.Processes() {
		logged, err := os.ReadFile(filepath.Join(g.Dir, p.Name()+".log"))
		if what := g.silentText(string(logged)); err != nil || what != "" {
			t.Errorf("%s logs %q: %v", p.Name(), what, err)
		}
	}
}

func (g *guarded) scan(t *testing.T, l fleet.Listener, purpose string) string {
	t.Helper()
	if l.Network == "unix" {
		return private(t, l, purpose)
	}
	at, err := netip.ParseAddrPort(l.Address)
	if err != nil || !at.Addr().IsLoopback() {
		t.Errorf("%s listens at %s, where others reach it: %v", l.Process, l.Address, err)
	}
	switch purpose {
	case "http":
		return fmt.Sprintf("%d routes refused", g.routes(t, l.Address))
	case "grpc":
		return fmt.Sprintf("%d methods refused", g.methods(t, l.Address))
	case "metrics":
		silent(t, l.Address)
	}
	if trusted[purpose] == "" {
		t.Errorf("%s at %s: nobody says what it is for", l.Process, l.Address)
	}
	return "listed: " + trusted[purpose]
}

// private checks that only this user reaches a socket.
func private(t *testing.T, l fleet.Listener, purpose string) string {
	t.Helper()
	if purpose != "engine socket" {
		t.Errorf("%s at %s: nobody says what it is for", l.Process, l.Address)
		return ""
	}
	for path, most := range map[string]os.FileMode{l.Address: 0o600, filepath.Dir(l.Address): 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&^most != 0 {
			t.Errorf("%s: mode %v, want at most %v: %v", path, info.Mode().Perm(), most, err)
		}
	}
	c, err := net.Dial("unix", l.Address)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	if _, err := c.Write([]byte("not a frame of the protocol, and long enough to be read as one")); err != nil {
		t.Error(err)
	}
	ended(t, l, c)
	return "this user only; noise ends the connection"
}

// noise has each listener read what no protocol of its begins with, and a TLS hello;
// all of them at once, since some have a caller wait for seconds.
func noise(t *testing.T, all []fleet.Listener) {
	t.Helper()
	var each sync.WaitGroup
	for _, l := range all {
		if l.Network == "tcp" {
			each.Go(func() { noisy(t, l) })
		}
	}
	each.Wait()
}

func noisy(t *testing.T, l fleet.Listener) {
	c, err := net.Dial("tcp", l.Address)
	if err != nil {
		t.Errorf("%s at %s: %s", l.Process, l.Address, err)
		return
	}
	defer c.Close()
	if _, err := c.Write([]byte("\x00\xff\x00\xff noise \r\n\r\n" + strings.Repeat("\xff", 64))); err != nil {
		t.Error(err)
	}
	ended(t, l, c)
	secure, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(withinOf(t, 5*time.Second), "tcp", l.Address)
	if err == nil {
		secure.Close()
		t.Errorf("%s at %s speaks TLS, which nobody told it", l.Process, l.Address)
	}
}

// ended waits until the other side ends a connection, or has it wait no longer
// than it has anybody wait for a first frame. Redis is nobody's of ours, and keeps it.
func ended(t *testing.T, l fleet.Listener, c net.Conn) {
	t.Helper()
	if l.Process == fleet.Redis {
		return
	}
	if err := c.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Error(err)
	}
	_, err := io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s at %s keeps a connection that speaks nothing", l.Process, l.Address)
	}
}

func withinOf(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// silent reads metrics: no prompt, no key.
func (g *guarded) silentText(text string) string {
	for _, key := range g.keys {
		if strings.Contains(text, key) {
			return "a key"
		}
	}
	if strings.Contains(text, secret) {
		return "a prompt"
	}
	return ""
}

func silent(t *testing.T, address string) {
	t.Helper()
	r, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Error(err)
		return
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || len(text) == 0 || strings.Contains(string(text), secret) || strings.Contains(string(text), "sk-") {
		t.Errorf("metrics at %s tell a prompt or a key, or nothing: %v", address, err)
	}
}

// routes asks for each HTTP path without credentials, with wrong ones and with
// those of the wrong kind of caller.
func (g *guarded) routes(t *testing.T, address string) (n int) {
	t.Helper()
	client, base := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+address
	if g.Options.Secure {
		client, base = g.web(t, "caller/whoever", false), "https://"+address
		defer client.CloseIdleConnections()
	}
	ask := func(method, path, authorization string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(`{"model":"m","prompt":"p"}`))
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for _, route := range []string{"POST /v1/completions", "POST /v1/chat/completions", "POST /v1/responses", "GET /v1/responses/resp_x", "POST /v1/responses/resp_x/cancel",
		"GET /v1/handoffs/x/events", "GET /v1/models", "GET /v1/models/x", "GET /metrics", "GET /ui/fleet", "GET /ui/handoffs", "GET /debug/pprof/", "GET /", "GET /nothing", "PUT /v1/completions"} {
		method, path, _ := strings.Cut(route, " ")
		for _, bad := range []string{"", "Bearer sk-nobody", "Basic Zm9vOmJhcg==", "Bearer ", "Bearer " + strings.Repeat("x", 5000)} {
			if code, text := ask(method, path, bad); code != http.StatusUnauthorized || !strings.Contains(text, "invalid_api_key") {
				t.Errorf("%s with %.20q: %d %.200s", route, bad, code, text)
			}
		}
		n++
	}
	for _, who := range []string{acme, other} {
		if code, text := ask("GET", "/metrics", "Bearer "+g.keys[who]); code != http.StatusForbidden {
			t.Errorf("metrics for tenant %s: %d %.100s", who, code, text)
		}
	}
	code, text := ask("GET", "/metrics", "Bearer "+g.keys[operator])
	if what := g.silentText(text); code != http.StatusOK || what != "" {
		t.Errorf("metrics for an operator: %d, and they tell %q", code, what)
	}
	for _, open := range []string{"/healthz", "/readyz", "/ui/", "/ui/app.js", "/ui/style.css"} { // they hold nothing
		code, text := ask("GET", open, "")
		if what := g.silentText(text); code != http.StatusOK || what != "" {
			t.Errorf("%s: %d, and it tells %q", open, code, what)
		}
	}
	return n
}

// methods asks for each gRPC method that reflection tells, so none is forgotten.
func (g *guarded) methods(t *testing.T, address string) (n int) {
	t.Helper()
	creds := insecure.NewCredentials()
	if g.Options.Secure {
		c, err := g.Secured("caller/whoever", false)
		if err != nil {
			t.Fatal(err)
		}
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	names, err := methodsOf(g.as(t, operator), conn)
	if err != nil || len(names) < 20 {
		t.Fatalf("reflection tells %d methods: %v", len(names), err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "/grpc.health.v1.Health/") { // readiness, for balancers
			if name == "/grpc.health.v1.Health/Check" && invoke(t.Context(), conn, name) != codes.OK {
				t.Errorf("%s is not open", name)
			}
			continue
		}
		n++
		for _, ctx := range []context.Context{t.Context(), metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer sk-nobody")} {
			if c := invoke(ctx, conn, name); c != codes.Unauthenticated {
				t.Errorf("%s without credentials: %s", name, c)
			}
		}
		of := strings.HasPrefix(name, "/surehand.submit.v1.Submit/") || strings.HasPrefix(name, "/grpc.reflection")
		for who, may := range map[string]bool{acme: of, operator: of || strings.HasPrefix(name, "/surehand.operate."), "fleet": strings.HasPrefix(name, "/surehand.submit.v1.Reader/")} {
			if c := invoke(g.as(t, who), conn, name); may == (c == codes.PermissionDenied) && !(who == operator && of) || c == codes.Unauthenticated {
				t.Errorf("%s for %s: %s", name, who, c)
			}
		}
	}
	return n
}

func (g *guarded) as(t *testing.T, who string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+g.keys[who])
}

// invoke calls a method of any kind with an empty message, and tells the code of
// its first answer.
func invoke(ctx context.Context, conn *grpc.ClientConn, method string) codes.Code {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err == nil {
		err = errors.Join(s.SendMsg(&emptypb.Empty{}), s.CloseSend())
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = s.RecvMsg(&emptypb.Empty{})
	}
	if errors.Is(err, io.EOF) {
		return codes.OK
	}
	return status.Code(err)
}

func methodsOf(ctx context.Context, conn *grpc.ClientConn) (out []string, err error) {
	s, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	ask := func(r *grpc_reflection_v1.ServerReflectionRequest) (*grpc_reflection_v1.ServerReflectionResponse, error) {
		if err := s.Send(r); err != nil {
			return nil, err
		}
		return s.Recv()
	}
	list, err := ask(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	if err != nil {
		return nil, err
	}
	for _, service := range list.GetListServicesResponse().GetService() {
		got, err := ask(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()}})
		if err != nil {
			return nil, err
		}
		for _, raw := range got.GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			if err := proto.Unmarshal(raw, &file); err != nil {
				return nil, err
			}
			for _, d := range file.GetService() {
				for _, m := range d.GetMethod() {
					if name := "/" + file.GetPackage() + "." + d.GetName() + "/" + m.GetName(); !slices.Contains(out, name) {
						out = append(out, name)
					}
				}
			}
		}
	}
	return out, s.CloseSend()
}
