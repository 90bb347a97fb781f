package guarded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/transferd/identity/authority"
	"github.com/surehand/surehand/workers/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	servedWithin = 30 * time.Second
	restWithin   = 30 * time.Second
)

// guarded is a fleet that lets nobody in without a key.
type guarded struct {
	*fleet.Fleet
	keys map[string]string // by tenant, "operator" and "fleet"
	file string            // the access file
	text string            // what it held first
}

// names of the tenants; limited has quotas.
const (
	acme, other, limited = "acme", "other", "limited"
	operator             = "operator"
)

// open starts a fleet behind an access file, waits until it serves, and checks
// at the end that nothing is held.
func open(t *testing.T, o fleet.Options) *guarded {
	t.Helper()
	p := fleettest.Built(t, patient)
	dir, err := os.MkdirTemp("", "surehand-g-")
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{keys: map[string]string{}}
	args, err := g.access(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.GatewayArgs = append(o.GatewayArgs, args...)
	g.Fleet, err = fleet.Start(t.Context(), p, dir, o)
	t.Cleanup(func() {
		if err == nil && g.Fleet != nil && len(g.HTTP) > 0 {
			if held := g.AtRest(context.Background(), restWithin); held != nil {
				t.Error(held)
			}
		}
		if failed := errors.Join(g.Stop(), os.RemoveAll(dir)); failed != nil {
			t.Error(failed)
		}
	})
	if errors.Is(err, fleet.ErrNoHost) {
		err = nil
		t.Skip(fleet.ErrNoHost)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name := range g.HTTP {
		c := g.client(t, name)
		if a, _ := c.Insist(t.Context(), g.ask(acme, "Is anybody there?", 3), servedWithin, 100*time.Millisecond); a.Whole() != nil {
			t.Fatal(chaos.Verdict(a))
		}
	}
	return g
}

// access writes the file and draws the keys.
func (g *guarded) access(dir string) (args []string, err error) {
	line := func(who string) string {
		return strings.TrimSuffix(g.draw(who), "}") + fmt.Sprintf(", certificates: [\"spiffe://%s/caller/%s\"]}", fleet.TrustDomain, who)
	}
	quota := strings.TrimSuffix(line(limited), "}") + ", requests_per_second: 0.05, burst: 2, max_prompt_bytes: 100}"
	text := fmt.Sprintf("tenants:\n  %s: %s\n  %s: %s\n  %s: %s\noperators:\n  alice: %s\nfleet: %s\n",
		acme, line(acme), other, line(other), limited, quota, line(operator), line("fleet"))
	key := filepath.Join(dir, "fleet.key")
	g.file, g.text = filepath.Join(dir, "access.yaml"), text
	return []string{"--access", g.file, "--fleet-key", key}, errors.Join(g.write(text), os.WriteFile(key, []byte(g.keys["fleet"]), 0o600))
}

// draw gives somebody a key, and how the file tells of it.
func (g *guarded) draw(who string) string {
	g.keys[who] = "sk-" + rand.Text()
	sum := access.Digest(g.keys[who])
	return fmt.Sprintf("{keys: [\"sha256:%s\"]}", hex.EncodeToString(sum[:]))
}

// write puts another access file in the place of the one that is there.
func (g *guarded) write(text string) error { return authority.Replace(g.file, []byte(text)) }

func (g *guarded) client(t *testing.T, gateway string) *traffic.Client {
	t.Helper()
	c := traffic.NewClient(g.HTTP[gateway])
	if g.Options.Secure {
		c = traffic.NewClientWith("https://"+g.HTTP[gateway], g.web(t, "caller/"+acme, false))
	}
	t.Cleanup(c.Close)
	return c
}

// web speaks HTTP with a certificate for that path of the fleet's trust domain.
func (g *guarded) web(t *testing.T, path string, stranger bool) *http.Client {
	t.Helper()
	c, err := g.Secured(path, stranger)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
}

func (g *guarded) ask(who, prompt string, tokens int) traffic.Ask {
	return traffic.Ask{Model: g.Options.ModelName(), Prompt: prompt, MaxTokens: tokens, APIKey: g.keys[who]}
}
