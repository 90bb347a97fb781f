package guarded

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/traffic"
)

// Another tenant's handoff is not there: not to be attached to, read as a
// response, or cancelled, at either gateway, while it runs and after it; and to
// ask changes nothing for its owner.
func TestAnotherTenantsHandoffIsNotThere(t *testing.T) {
	g := shared(t)
	ask := g.ask(acme, "mine", 300)
	ask.Journal = true
	over := g.client(t, "g1").Begin(t.Context(), ask, 1)
	id := g.running(t)
	foreign := func(when string) {
		for _, gateway := range []string{"g1", "g2"} {
			for path, method := range map[string]string{"/v1/handoffs/" + id + "/events": "GET", "/v1/responses/resp_" + id: "GET", "/v1/responses/resp_" + id + "/cancel": "POST"} {
				code, text := g.call(t, gateway, method, path, other)
				if code != http.StatusNotFound && code != http.StatusGone {
					t.Errorf("%s: %s %s at %s: %d %.200s", when, method, path, gateway, code, text)
				}
				if strings.Contains(text, "w0") || strings.Contains(text, "acme") {
					t.Errorf("%s: %s %s at %s tells of it: %.200s", when, method, path, gateway, text)
				}
			}
		}
	}
	foreign("while it runs")
	a := <-over
	if err := a.Counted(300); err != nil || a.Handoff != id {
		t.Errorf("its owner saw %s of %s, not %s", chaos.Verdict(a), a.Handoff, id)
	}
	foreign("after it")
	if code, text := g.call(t, "g2", "GET", "/v1/handoffs/"+id+"/events", acme); code != http.StatusOK || !strings.Contains(text, "w299") {
		t.Errorf("its owner comes back: %d %.200s", code, text)
	}
}

// running waits for the one handoff that is listed.
func (g *guarded) running(t *testing.T) string {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ids, err := g.RunningOf(t.Context(), acme)
		if err == nil && len(ids) == 1 {
			return ids[0]
		}
	}
	t.Error("the handoff is not listed")
	return ""
}

func (g *guarded) call(t *testing.T, gateway, method, path, who string) (int, string) {
	t.Helper()
	code, text, err := traffic.Raw(t.Context(), method, "http://"+g.HTTP[gateway]+path, g.keys[who])
	if err != nil {
		t.Fatal(err)
	}
	return code, text
}
