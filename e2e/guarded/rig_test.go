package guarded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/transferd/identity/authority"
	"github.com/surehand/surehand/workers/access"
)

var programs = sync.OnceValues(func() (fleet.Programs, error) { return fleet.Build(context.Background(), patient) })

// common is the fleet of the tests that need none of their own; nil before the
// first of them.
var common *guarded

func TestMain(m *testing.M) {
	before := goleak.IgnoreCurrent()
	code := m.Run()
	var failed error
	if common != nil {
		failed = common.close()
	}
	if failed = errors.Join(failed, goleak.Find(before)); failed != nil {
		fmt.Fprintln(os.Stderr, failed)
		code = max(code, 1)
	}
	os.Exit(code)
}

const (
	servedWithin = 30 * time.Second
	restWithin   = 30 * time.Second
)

// guarded is a fleet that lets nobody in without a key.
type guarded struct {
	*fleet.Fleet
	dir  string
	keys map[string]string // by tenant, "operator" and "fleet"
	file string            // the access file
	text string            // what it held first
}

// names of the tenants; neither has a quota.
const (
	acme, other = "acme", "other"
	operator    = "operator"
)

// shared is a fleet of two gateways that tests share: as it was started when it is
// given, and at rest again when the test is over.
func shared(t *testing.T) *guarded {
	t.Helper()
	if common == nil {
		g, err := start(t, chaos.Options())
		if err != nil {
			t.Fatal(errors.Join(err, g.close()))
		}
		common = g
		g.serves(t)
	}
	g := common
	keys := maps.Clone(g.keys)
	t.Cleanup(func() {
		g.keys = keys
		err := errors.Join(g.write(g.text), g.AtRest(context.Background(), restWithin))
		if err != nil {
			t.Error(err)
		}
		if t.Failed() { // the next one gets another
			common = nil
			if err := g.close(); err != nil {
				t.Error(err)
			}
		}
	})
	return g
}

// open is a fleet of one's own, that serves; it is at rest when the test is over.
func open(t *testing.T, o fleet.Options) *guarded {
	t.Helper()
	g, err := start(t, o)
	t.Cleanup(func() {
		var held error
		if err == nil {
			held = g.AtRest(context.Background(), restWithin)
		}
		if failed := errors.Join(held, g.close()); failed != nil {
			t.Error(failed)
		}
	})
	if errors.Is(err, fleet.ErrNoHost) {
		t.Skip(fleet.ErrNoHost)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.serves(t)
	return g
}

// start begins a fleet behind an access file. Close what it gives, also beside an error.
func start(t *testing.T, o fleet.Options) (*guarded, error) {
	t.Helper()
	p := fleettest.Programs(t, programs)
	dir, err := os.MkdirTemp("", "surehand-g-")
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{keys: map[string]string{}, dir: dir}
	args, err := g.access()
	if err != nil {
		return g, err
	}
	o.GatewayArgs = append(o.GatewayArgs, args...)
	g.Fleet, err = fleet.Start(t.Context(), p, dir, o)
	return g, err
}

func (g *guarded) close() error {
	var stopped error
	if g.Fleet != nil {
		stopped = g.Stop()
	}
	return errors.Join(stopped, os.RemoveAll(g.dir))
}

// serves waits until a tenant is answered at each gateway.
func (g *guarded) serves(t *testing.T) {
	t.Helper()
	for name := range g.HTTP {
		if a, _ := g.client(t, name).Insist(t.Context(), g.ask(acme, "Is anybody there?", 3), servedWithin, 100*time.Millisecond); a.Whole() != nil {
			t.Fatal(chaos.Verdict(a))
		}
	}
}

// access writes the file and draws the keys.
func (g *guarded) access() (args []string, err error) {
	line := func(who string) string {
		return strings.TrimSuffix(g.draw(who), "}") + fmt.Sprintf(", certificates: [\"spiffe://%s/caller/%s\"]}", fleet.TrustDomain, who)
	}
	text := fmt.Sprintf("tenants:\n  %s: %s\n  %s: %s\noperators:\n  alice: %s\nfleet: %s\n", acme, line(acme), other, line(other), line(operator), line("fleet"))
	key := filepath.Join(g.dir, "fleet.key")
	g.file, g.text = filepath.Join(g.dir, "access.yaml"), text
	return []string{"--access", g.file, "--fleet-key", key}, errors.Join(g.write(text), os.WriteFile(key, []byte(g.keys["fleet"]), 0o600))
}

// draw gives somebody a key, and how the file tells of it.
func (g *guarded) draw(who string) string {
	g.keys[who] = "sk-" + rand.Text()
	sum := access.Digest(g.keys[who])
	return fmt.Sprintf("{keys: [\"sha256:%s\"]}", hex.EncodeToString(sum[:]))
}

// limited lets in a tenant that nobody knows yet, with quotas of which nothing is used,
// and gives its name.
func (g *guarded) limited(t *testing.T, quotas string) string {
	t.Helper()
	name := "limited-" + strings.ToLower(rand.Text())
	line := strings.TrimSuffix(g.draw(name), "}") + ", " + quotas + "}"
	g.put(t, strings.Replace(g.text, "tenants:\n", "tenants:\n  "+name+": "+line+"\n", 1))
	g.everywhere(t, "a key that was put in", name, http.StatusOK, codes.OK)
	return name
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
