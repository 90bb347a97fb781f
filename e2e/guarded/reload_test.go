package guarded

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/traffic"
)

// The access file is written anew under a running fleet, and nothing is started
// again: a key that is put in works, and one that is taken out is refused, on HTTP
// and on gRPC, at both gateways; a file that is no good leaves the last one in
// force, and log and metric say so. A stream that is under way all the while is whole.
func TestKeysComeAndGoWithoutARestart(t *testing.T) {
	g := shared(t)
	ctx := withinOf(t, 2*time.Minute)
	over := g.client(t, "g1").Begin(ctx, g.ask(acme, "all the while", 800), 1)
	line := g.draw("late")
	g.everywhere(t, "a key that nobody put in", "late", http.StatusUnauthorized, codes.Unauthenticated)

	g.put(t, strings.Replace(g.text, "tenants:\n", "tenants:\n  late: "+line+"\n", 1))
	g.everywhere(t, "a key that was put in", "late", http.StatusOK, codes.OK)
	for _, name := range []string{"g1", "g2"} {
		if a := g.client(t, name).Send(ctx, g.ask("late", "newly let in", 5)); a.Counted(5) != nil {
			t.Errorf("at %s: %s", name, chaos.Verdict(a))
		}
	}

	g.put(t, g.text)
	g.everywhere(t, "a key that was taken out", "late", http.StatusUnauthorized, codes.Unauthenticated)

	g.put(t, "tenants: {late: {keys: ["+g.keys["late"]+"]}") // no YAML, and a key in clear
	for _, name := range []string{"g1", "g2"} {
		g.stale(t, name, "1")
		if logged := g.Process(name).Tail(); !strings.Contains(logged, "the last good one stays in force") || strings.Contains(logged, g.keys["late"]) {
			t.Errorf("%s logs of a file that is no good: %s", name, logged)
		}
	}
	g.everywhere(t, "a key of the last good file", acme, http.StatusOK, codes.OK)
	g.everywhere(t, "a key of a file that is no good", "late", http.StatusUnauthorized, codes.Unauthenticated)

	g.put(t, g.text)
	for _, name := range []string{"g1", "g2"} {
		g.stale(t, name, "0")
	}
	if a := <-over; a.Counted(800) != nil {
		t.Errorf("the stream of all the while: %s", chaos.Verdict(a))
	}
}

func (g *guarded) put(t *testing.T, text string) {
	t.Helper()
	if err := g.write(text); err != nil {
		t.Fatal(err)
	}
}

// everywhere waits until both surfaces of both gateways answer a key so.
func (g *guarded) everywhere(t *testing.T, what, who string, status int, code codes.Code) {
	t.Helper()
	const within = 20 * time.Second // the file is looked at each second
	for _, name := range []string{"g1", "g2"} {
		conn, err := grpc.NewClient(g.GRPC[name], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
			got, _, err := traffic.Raw(t.Context(), "GET", "http://"+g.HTTP[name]+"/v1/models", g.keys[who])
			spoken := invoke(g.as(t, who), conn, "/surehand.submit.v1.Submit/List")
			if err == nil && got == status && spoken == code {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s, at %s: %d and %s, want %d and %s: %v", what, name, got, spoken, status, code, err)
				break
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stale waits for what a gateway's metric says of its access file.
func (g *guarded) stale(t *testing.T, name, want string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		code, text := g.call(t, name, "GET", "/metrics", operator)
		if code == http.StatusOK && strings.Contains(text, "\nsurehand_access_file_stale "+want+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s does not say that its access file is stale: %s", name, want)
			return
		}
	}
}
