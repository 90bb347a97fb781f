package connector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

const (
	corpus = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. "
	block  = 128 // tokens
)

// Equal tokens alone would prove nothing: an engine that computes the prompt
// itself gives them as well. Its own counters say how the prompt came.
func TestTokensEqualThoseOfOneEngineAroundEveryBlockBorder(t *testing.T) {
	for _, tokens := range []int{1, 4, block - 1, block, block + 1, 2*block - 1, 2 * block, 2*block + 1, 400} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) {
			prompt := promptOf(t, tokens)
			before := lookAtD(t)
			a := sameAsPlain(t, traffic.Ask{Prompt: prompt, MaxTokens: 12})
			if a.Usage.Prompt != tokens || a.Usage.Direct != tokens || a.Usage.Cached+a.Usage.Recomputed != 0 {
				t.Errorf("usage is %+v, want all %d tokens direct", a.Usage, tokens)
			}
			// A prompt of one token is the one that vLLM runs again to draw the next.
			again := 0
			if tokens == 1 {
				again = 1
			}
			if external, local := before.since(lookAtD(t)); external != tokens-again || local != again {
				t.Errorf("by D's own counters %d tokens came by transfer and %d were computed, of %d", external, local, tokens)
			}
		})
	}
	atRest(t)
}

func TestAPrefixThatDHasIsNotMovedAgain(t *testing.T) {
	prompt := promptOf(t, 300)
	ask := traffic.Ask{Prompt: prompt, MaxTokens: 8, Decode: "d1"}
	sameAsPlain(t, ask)
	before := lookAtD(t)
	a := sameAsPlain(t, ask)
	if a.Usage.Cached != 2*block || a.Usage.Direct != 300-2*block {
		t.Errorf("usage is %+v, want %d cached and the rest direct", a.Usage, 2*block)
	}
	if external, local := before.since(lookAtD(t)); external != 300-2*block || local != 0 {
		t.Errorf("by D's own counters %d tokens came by transfer and %d were computed", external, local)
	}
	out, err := rig.Outcome(within(t), "default", a.Handoff)
	if err != nil || out.Bytes != vllmenv.BlockBytes {
		t.Errorf("%d bytes moved, want one block, %d: %v", out.Bytes, vllmenv.BlockBytes, err)
	}
	other := ask
	other.Tenant = "another" // shares no prefix
	if b := sameAsPlain(t, other); b.Usage.Cached != 0 {
		t.Errorf("a prefix of another tenant was used: %+v", b.Usage)
	}
	atRest(t)
}

func TestSixtyFourAtOnceAreAllRight(t *testing.T) {
	const many = 64
	asks := make([]traffic.Ask, many)
	want := make([]string, many)
	for i := range asks {
		asks[i] = traffic.Ask{Model: vllmenv.Served, Prompt: fmt.Sprintf("%d: ", i) + strings.Repeat(corpus, 1+i%7), MaxTokens: 6 + i%8}
	}
	each(many, 8, func(i int) { want[i] = plain(t, asks[i]).Text })
	before, began := lookAtD(t), time.Now()
	answers := make([]traffic.Answer, many)
	refused := make([]int, many)
	each(many, many, func(i int) {
		answers[i], refused[i] = rig.gateway().Insist(within(t), asks[i], answerWithin, 50*time.Millisecond)
	})
	prompt, later := 0, 0
	for i, a := range answers {
		if err := a.Whole(); err != nil || a.Text != want[i] {
			t.Errorf("request %d: %v, %q, want %q", i, err, a.Text, want[i])
		}
		prompt += a.Usage.Direct
		later += refused[i]
	}
	if external, local := before.since(lookAtD(t)); external < prompt || local != 0 {
		t.Errorf("by D's own counters %d tokens came by transfer and %d were computed; the answers say %d", external, local, prompt)
	}
	t.Logf("%d handoffs in %s, %d refusals for want of room", many, time.Since(began).Round(10*time.Millisecond), later)
	atRest(t)
}

// each calls f for 0..n-1, some at once.
func each(n, atOnce int, f func(int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		all.Go(func() {
			slots <- struct{}{}
			f(i)
			<-slots
		})
	}
	all.Wait()
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	t.Cleanup(cancel)
	return ctx
}

func plain(t *testing.T, a traffic.Ask) traffic.Answer {
	t.Helper()
	a.Model, a.Prefill, a.Decode, a.Tenant = vllmenv.Served, "", "", ""
	out := traffic.NewClient(strings.TrimPrefix(rig.plain.URL, "http://")).Send(within(t), a)
	if out.Text == "" || out.Broken != nil {
		t.Errorf("the plain engine: %+v", out)
	}
	return out
}

// sameAsPlain sends an ask through the fleet; its text must be the plain engine's.
func sameAsPlain(t *testing.T, a traffic.Ask) traffic.Answer {
	t.Helper()
	a.Model = vllmenv.Served
	want := plain(t, a)
	got := rig.gateway().Send(within(t), a)
	if err := got.Whole(); err != nil {
		t.Fatal(err)
	}
	if got.Text != want.Text || got.Finish != want.Finish {
		t.Errorf("%q (%s), want %q (%s)", got.Text, got.Finish, want.Text, want.Finish)
	}
	return got
}

func atRest(t *testing.T) {
	t.Helper()
	if err := rig.AtRest(t.Context(), restWithin); err != nil {
		t.Error(err)
	}
}

// counted is what both D count of where prompts came from.
type counted struct{ external, local int }

func lookAtD(t *testing.T) (c counted) {
	t.Helper()
	for _, id := range []string{"d1", "d2"} {
		m, err := pair.Look(within(t), rig.vllm[id].URL)
		if err != nil {
			t.Fatal(err)
		}
		c.external += m.Source(pair.External)
		c.local += m.Source(pair.Local)
	}
	return c
}

func (c counted) since(now counted) (external, local int) {
	return now.external - c.external, now.local - c.local
}

// promptOf gives a text of exactly so many tokens that no other test uses.
func promptOf(t *testing.T, tokens int) string {
	t.Helper()
	numbered++
	text := strings.Repeat(fmt.Sprintf("%d ", numbered), 3) + strings.Repeat(corpus, tokens/20+1)
	if tokens < 8 {
		text = string(rune('a'+numbered%26)) + "bcdefghijklmnop"
	}
	for cut := min(tokens, len(text)); cut <= len(text); cut++ {
		n := count(t, text[:cut])
		if n == tokens {
			return text[:cut]
		}
		cut += max(0, (tokens-n)/2-1) // tokens are a byte at least: never past it
	}
	t.Fatalf("no text of %d tokens", tokens)
	return ""
}

var numbered int

func count(t *testing.T, text string) int {
	t.Helper()
	b, err := json.Marshal(map[string]any{"model": vllmenv.Served, "prompt": text})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(within(t), http.MethodPost, rig.plain.URL+"/tokenize", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var out struct{ Count int }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out.Count
}

// d2's connector is inside of vLLM's MultiConnector.
func TestADInsideOfMultiConnectorTakesHandoffs(t *testing.T) {
	for _, tokens := range []int{block - 1, 300} {
		before := lookAtD(t)
		a := sameAsPlain(t, traffic.Ask{Prompt: promptOf(t, tokens), MaxTokens: 12, Decode: "d2"})
		if external, local := before.since(lookAtD(t)); a.Usage.Direct != tokens || external != tokens || local != 0 {
			t.Errorf("usage is %+v; by D's own counters %d tokens came by transfer and %d were computed", a.Usage, external, local)
		}
	}
	atRest(t)
}
