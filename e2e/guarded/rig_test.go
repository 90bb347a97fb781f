package guarded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
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
		if err == nil {
			if held := g.AtRest(context.Background(), restWithin); held != nil {
				t.Error(held)
			}
		}
		if failed := errors.Join(g.Stop(), os.RemoveAll(dir)); failed != nil {
			t.Error(failed)
		}
	})
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
		g.keys[who] = "sk-" + rand.Text()
		sum := access.Digest(g.keys[who])
		return fmt.Sprintf("{keys: [\"sha256:%s\"]}", hex.EncodeToString(sum[:]))
	}
	quota := strings.TrimSuffix(line(limited), "}") + ", requests_per_second: 0.05, burst: 2, max_prompt_bytes: 100}"
	text := fmt.Sprintf("tenants:\n  %s: %s\n  %s: %s\n  %s: %s\noperators:\n  alice: %s\nfleet: %s\n",
		acme, line(acme), other, line(other), limited, quota, line(operator), line("fleet"))
	file, key := filepath.Join(dir, "access.yaml"), filepath.Join(dir, "fleet.key")
	return []string{"--access", file, "--fleet-key", key}, errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(key, []byte(g.keys["fleet"]), 0o600))
}

func (g *guarded) client(t *testing.T, gateway string) *traffic.Client {
	c := traffic.NewClient(g.HTTP[gateway])
	t.Cleanup(c.Close)
	return c
}

func (g *guarded) ask(who, prompt string, tokens int) traffic.Ask {
	return traffic.Ask{Model: g.Options.ModelName(), Prompt: prompt, MaxTokens: tokens, APIKey: g.keys[who]}
}
