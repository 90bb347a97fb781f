package vllm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/pair"
)

const sentence = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. "

// text is a prompt of which no other test has the beginning.
func text(t *testing.T, i, sentences int) string {
	return fmt.Sprintf("%s %d: ", t.Name(), i) + strings.Repeat(sentence, sentences)
}

// equal asks one engine alone and the pair through Surehand; it gives how many
// prompt tokens D got.
func equal(t *testing.T, a pair.Ask) pair.Answer {
	t.Helper()
	want, err := a.Send(t.Context(), rig.Plain.URL)
	if err != nil || !want.Ended() || len(want.Tokens) != a.Tokens {
		t.Fatal("one engine alone:", want, err)
	}
	got, err := a.Send(t.Context(), rig.URL())
	if err != nil || !got.Ended() || !slices.Equal(got.Tokens, want.Tokens) {
		t.Errorf("through Surehand: %s, want %s, %v", got, want, err)
	}
	return got
}

// moved is what D's own counters say of where its prompts came from, since before.
func moved(t *testing.T, before pair.Counters) (external, local int) {
	t.Helper()
	now := look(t, rig.D.URL)
	return now.Source(pair.External) - before.Source(pair.External), now.Source(pair.Local) - before.Source(pair.Local)
}

func TestTokensEqualThoseOfOneEngineAndDComputedNoPrompt(t *testing.T) {
	for i, a := range []pair.Ask{
		{Prompt: "Hi", Tokens: 8},
		{Prompt: text(t, 1, 1), Tokens: 24},
		{Prompt: text(t, 2, 4), Tokens: 24},
		{Prompt: text(t, 3, 8), Tokens: 24, Whole: true},
		{Prompt: text(t, 4, 2), Tokens: 12, Chat: true},
		{Prompt: text(t, 5, 2), Tokens: 12, Chat: true, Whole: true},
	} {
		before := look(t, rig.D.URL)
		got := equal(t, a)
		external, local := moved(t, before)
		if external == 0 || local != 0 {
			t.Errorf("request %d: D got %d prompt tokens by transfer and computed %d", i, external, local)
		}
		out, err := rig.Fleet.Outcome(t.Context(), "default", got.Handoff)
		if err != nil || out.Code != "" || !out.Committed || out.Attempt.Epoch != 1 {
			t.Errorf("request %d: the history says %+v, %v", i, out, err)
		}
		t.Logf("request %d: %d prompt tokens moved", i, external)
	}
	rest(t)
}

// P finds the beginning of a prompt that it has computed before; what D gets is
// whole all the same, and D itself finds nothing (it must not: see doc).
func TestAPrefixThatPHasIsHandedOverLikeAnyOther(t *testing.T) {
	first := pair.Ask{Prompt: text(t, 0, 5), Tokens: 12}
	equal(t, first)
	before, p := look(t, rig.D.URL), look(t, rig.P.URL)
	longer := first
	longer.Prompt += "And more of it."
	equal(t, longer)
	equal(t, first)
	if external, local := moved(t, before); external == 0 || local != 0 || look(t, rig.D.URL).Source(pair.LocalHit) != before.Source(pair.LocalHit) {
		t.Errorf("D got %d prompt tokens by transfer, computed %d", external, local)
	}
	if hits := look(t, rig.P.URL).Source(pair.LocalHit) - p.Source(pair.LocalHit); hits == 0 {
		t.Error("P found no prefix")
	}
	rest(t)
}

// A prefill that waits at P for longer than its lease is refused, typed: with so
// many at once some are, where the machine is slow. Asked again they are answered.
func TestSixtyFourAtOnceGetEachTheirOwnTokens(t *testing.T) {
	const many = 64
	asks, want, got := make([]pair.Ask, many), make([]pair.Answer, many), make([]pair.Answer, many)
	var err [many]error
	for i := range asks {
		asks[i] = pair.Ask{Prompt: text(t, i, 1+i%4), Tokens: 8 + i%5}
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var refused atomic.Int64
	at := func(url string, out []pair.Answer) {
		var all sync.WaitGroup
		for i, a := range asks {
			all.Go(func() {
				for {
					out[i], err[i] = a.Send(ctx, url)
					if err[i] != nil || out[i].Status != http.StatusServiceUnavailable && out[i].Status != http.StatusTooManyRequests || out[i].Code == "" || ctx.Err() != nil {
						return
					}
					refused.Add(1)
					select {
					case <-time.After(lookEvery):
					case <-ctx.Done():
					}
				}
			})
		}
		all.Wait()
	}
	at(rig.Plain.URL, want)
	before, began := look(t, rig.D.URL), time.Now()
	at(rig.URL(), got)
	took := time.Since(began)
	for i := range asks {
		if err[i] != nil || !want[i].Ended() || !got[i].Ended() || !slices.Equal(got[i].Tokens, want[i].Tokens) {
			t.Errorf("request %d: %s, want %s, %v", i, got[i], want[i], err[i])
		}
	}
	external, local := moved(t, before)
	if external == 0 || local != 0 {
		t.Errorf("D got %d prompt tokens by transfer and computed %d", external, local)
	}
	t.Logf("%d at once took %s, %d times one was refused and asked again; D got %d prompt tokens by transfer", many, took.Round(10*time.Millisecond), refused.Load(), external)
	rest(t)
}
