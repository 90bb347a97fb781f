package guarded

import (
	"crypto/rand"
	"flag"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// The probe's size and its decision: the Kolmogorov–Smirnov test of two samples
// calls them different when so large a distance of their distributions would come
// by chance in at most one of a thousand tests.
const (
	probeAlpha  = 0.001
	probePrompt = 126 // bytes: 128 tokens, some whole blocks
	probeRate   = 20000
	alphaText   = "abcdefghijklmnopqrstuvwxyz      "
)

var probes = flag.Int("probes", 1000, "prompts that were sent before, and as many that were not")

// A caller tries to learn whether another tenant has sent a prompt, from the
// time to its own first token and from its usage. Across tenants it learns
// nothing; within one it does, so that the probe would find what is there.
func TestAPromptOfAnotherTenantCannotBeProbed(t *testing.T) {
	if !patient {
		t.Skip("to judge times takes many: with -tags e2e")
	}
	n := *probes
	// The trained model: its prefixes are shared. P computes at a pace, so that what it computes is what is waited for.
	g := open(t, fleet.Options{Prefill: 1, Decode: 1, Gateways: 1, Model: true, Blocks: 1024, EngineArgs: []string{"--prefill-tok-s", fmt.Sprint(probeRate)}, Lease: chaos.Lease})
	c := g.client(t, "g1")
	within := g.probe(t, c, acme, acme, min(n, 200))
	across := g.probe(t, c, acme, other, n)
	t.Logf("within a tenant: %s", within)
	t.Logf("across tenants:  %s", across)
	if !within.differ() {
		t.Error("the probe finds nothing even within a tenant: it is no probe")
	}
	if across.differ() {
		t.Error("the time to the first token tells of another tenant's prompts")
	}
	if len(across.usage) != 1 {
		t.Errorf("the usage tells of another tenant's prompts: %v", across.usage)
	}
}

// probed is two samples of times to the first token, in seconds: of prompts that
// the victim had sent, and of prompts that nobody had.
type probed struct {
	warm, cold []float64
	usage      map[traffic.Usage]int // what was told of tokens, and how often
}

// probe has a victim send a prompt, and then a caller the same one or a fresh
// one, in random order: each probe has a request before it.
func (g *guarded) probe(t *testing.T, c *traffic.Client, victim, caller string, n int) (p probed) {
	t.Helper()
	p.usage = map[traffic.Usage]int{}
	order := make([]bool, 2*n)
	for i := range n {
		order[i] = true
	}
	mrand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, warm := range order {
		prompt := fresh(t)
		sent := prompt
		if !warm {
			sent = fresh(t)
		}
		g.whole(t, c, victim, sent)
		a := g.whole(t, c, caller, prompt)
		p.usage[a.Usage]++
		if warm {
			p.warm = append(p.warm, a.FirstToken.Seconds())
		} else {
			p.cold = append(p.cold, a.FirstToken.Seconds())
		}
	}
	return p
}

func (g *guarded) whole(t *testing.T, c *traffic.Client, who, prompt string) traffic.Answer {
	t.Helper()
	a, _ := c.Insist(t.Context(), g.ask(who, prompt, 1), servedWithin, 50*time.Millisecond)
	if err := a.Whole(); err != nil {
		t.Fatal(err)
	}
	return a
}

// fresh is a prompt that nobody sent.
func fresh(t *testing.T) string {
	t.Helper()
	raw := make([]byte, probePrompt)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	for i, b := range raw {
		raw[i] = alphaText[int(b)%len(alphaText)]
	}
	return string(raw)
}

// distance of the two distributions, and the one from which on they differ.
func (p probed) distance() (d, critical float64) {
	warm, cold := slices.Sorted(slices.Values(p.warm)), slices.Sorted(slices.Values(p.cold))
	n, m := float64(len(warm)), float64(len(cold))
	return stat.KolmogorovSmirnov(warm, nil, cold, nil), math.Sqrt(-math.Log(probeAlpha/2)/2) * math.Sqrt((n+m)/(n*m))
}

func (p probed) differ() bool {
	d, critical := p.distance()
	return d > critical
}

func (p probed) String() string {
	d, critical := p.distance()
	verdict := "alike"
	if d > critical {
		verdict = "different"
	}
	median := func(of []float64) time.Duration {
		return time.Duration(traffic.Quantile(of, .5) * float64(time.Second)).Round(10 * time.Microsecond)
	}
	return verdict + fmt.Sprintf(" (D = %.4f, critical %.4f at alpha %g, n = %d each); median %s with the prompt sent before, %s without",
		d, critical, probeAlpha, len(p.warm), median(p.warm), median(p.cold))
}
