package connector

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

const (
	preemptions   = "vllm:num_preemptions_total"
	provokedTries = 5 // a try is lost only where hundreds of an engine's steps fit between two of the test's
)

// tight is engines of so few blocks that vLLM takes them from who came last: P of
// 18, d1 of 8, d2 of another revision, and d3, which wants a key that its front does
// not have. P computes three tokens a step: beside two decodes a prompt grows by one
// where each of them does.
func tight(s fleet.Seat) vllmenv.Options {
	o := options(s.ID)
	o.CacheBytes = 9 * vllmenv.BlockBytes // one block is nobody's
	if s.ID == "p1" {
		o.CacheBytes = 19 * vllmenv.BlockBytes
		o.Sequences, o.Args = 3, []string{"--max-num-batched-tokens", "3"}
	}
	if s.ID == "d3" {
		o.Args = []string{"--api-key", "another"}
	}
	return o
}

// Of these a request of another client has so many at its end: it grows to the eight
// blocks of a whole context, and for as long as a test needs.
const asidePrompt, asideTokens = 100, 900

// aside asks an engine itself, as a client does that is none of the gateway's.
func aside(t *testing.T, e *vllmenv.Engine, prompt string, tokens int) (streams <-chan struct{}, ended <-chan pair.Answer) {
	t.Helper()
	first, done := make(chan struct{}), make(chan pair.Answer, 1)
	ctx := within(t)
	go func() {
		var once sync.Once
		a, err := pair.Ask{Prompt: prompt, Tokens: tokens, OnToken: func(int) { once.Do(func() { close(first) }) }}.Send(ctx, e.URL)
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	return first, done
}

func count1(t *testing.T, e *vllmenv.Engine, name string) float64 {
	t.Helper()
	c, err := pair.Look(within(t), e.URL)
	must(t, err)
	return c.Sum(name, "", "")
}

func TestEnginesOfFewBlocks(t *testing.T) {
	r := others(t, "tight", 1, 3, tight, map[string]map[string]any{"d2": {"revision": "another"}})
	rest := func(t *testing.T) {
		t.Helper()
		if err := r.AtRest(t.Context(), restWithin); err != nil {
			t.Error(err)
		}
		for id, e := range r.vllm {
			await(t, id+" holds no block", func() bool { return count1(t, e, pair.Usage) == 0 })
		}
	}
	send := func(t *testing.T, a traffic.Ask) <-chan traffic.Answer {
		t.Helper()
		a.Model = vllmenv.Served
		return r.start(t, a).ended
	}
	first, _ := r.gateway().Insist(within(t), traffic.Ask{Model: vllmenv.Served, Prompt: corpus, MaxTokens: 4, Decode: "d1"}, answerWithin, 50*time.Millisecond)
	must(t, first.Whole())

	// What vLLM takes blocks from is the request that came last to run. Two that came
	// before it, and stand still until it is there, need all that there is.
	provoked := func(t *testing.T, e string, once func(t *testing.T)) {
		t.Helper()
		before := count1(t, r.vllm[e], preemptions)
		for range provokedTries {
			once(t)
			rest(t)
			if count1(t, r.vllm[e], preemptions) > before || t.Failed() {
				return
			}
			t.Log("this machine stood still for so long that the other requests were over: again")
		}
		t.Errorf("%s took no blocks back", e)
	}

	// d1 has 8 blocks. Ours holds 3 as the other begins, and has become 6 at its end.
	t.Run("a decode whose blocks D takes back is computed again", func(t *testing.T) {
		p, d := r.vllm["p1"], r.vllm["d1"]
		provoked(t, "d1", func(t *testing.T) {
			before := count1(t, d, preemptions)
			ask := traffic.Ask{Prompt: promptOf(t, 300), MaxTokens: 450, Decode: "d1", Deadline: answerWithin}
			want := plain(t, ask).Text
			must(t, p.Pause())
			mark, ours := r.Mark(), r.start(t, ask)
			r.reserved(t, "d1")
			streams, done := aside(t, d, promptOf(t, asidePrompt), asideTokens)
			<-streams
			must(t, d.Pause()) // it grows no more until ours may run
			must(t, p.Resume())
			_, err := r.Await(within(t), mark, isSealed)
			must(t, err)
			must(t, d.Resume())
			a := <-ours.ended
			if err := a.Whole(); err != nil || a.Text != want {
				t.Errorf("%v, %q, want %q", err, a.Text, want)
			}
			if count1(t, d, preemptions) > before && (a.Usage.Recomputed != a.Usage.Prompt || a.Usage.Direct+a.Usage.Cached != 0) {
				t.Errorf("usage is %+v: all of the prompt was computed again", a.Usage)
			}
			<-done
		})
	})

	// P has 18 blocks. Two others need 16 at their end, and never more by themselves;
	// ours needs 8, the last of them when the others have grown by 900 tokens, too.
	t.Run("a prefill whose blocks P takes back is computed again", func(t *testing.T) {
		p := r.vllm["p1"]
		provoked(t, "p1", func(t *testing.T) {
			ask := traffic.Ask{Prompt: promptOf(t, 900), MaxTokens: 8, Decode: "d1", Deadline: answerWithin}
			want := plain(t, ask).Text
			first, one := aside(t, p, promptOf(t, asidePrompt), asideTokens)
			second, other := aside(t, p, promptOf(t, asidePrompt), asideTokens)
			<-first
			<-second
			must(t, p.Pause()) // they grow no more until ours is on its way to it
			ours := r.start(t, ask)
			r.reserved(t, "d1")
			must(t, p.Resume())
			a := <-ours.ended
			if err := a.Whole(); err != nil || a.Text != want {
				t.Errorf("%v, %q, want %q", err, a.Text, want)
			}
			if a.Usage.Direct != a.Usage.Prompt {
				t.Errorf("usage is %+v, want all direct", a.Usage)
			}
			<-one
			<-other
		})
	})

	refused := func(t *testing.T, ask traffic.Ask) {
		t.Helper()
		before := count1(t, r.vllm["p1"], pair.Succeeded)
		a := <-send(t, ask)
		t.Logf("the client got: %d %+v", a.Status, a.Failure)
		if err := a.Typed(); err != nil || a.Failure == nil || a.Text != "" {
			t.Errorf("%v, %q", err, a.Text)
		}
		if n := count1(t, r.vllm["p1"], pair.Succeeded) - before; n != 0 {
			t.Errorf("P computed %.0f prompts for nothing", n)
		}
	}
	t.Run("a D that is full refuses before any prefill", func(t *testing.T) {
		streams, done := aside(t, r.vllm["d1"], promptOf(t, 100), 500)
		<-streams
		await(t, "D is nearly full", func() bool { return count1(t, r.vllm["d1"], pair.Usage) > 0.4 })
		refused(t, traffic.Ask{Prompt: promptOf(t, 700), MaxTokens: 8, Decode: "d1"})
		<-done
		rest(t)
	})

	t.Run("a D of another revision is refused before any prefill", func(t *testing.T) {
		refused(t, traffic.Ask{Prompt: promptOf(t, 100), MaxTokens: 8, Decode: "d2"})
		rest(t)
	})

	t.Run("a D that rejects its request is asked before any prefill", func(t *testing.T) {
		refused(t, traffic.Ask{Prompt: promptOf(t, 100), MaxTokens: 8, Decode: "d3"})
		rest(t)
	})

	t.Run("what an engine cannot answer is refused before any prefill", func(t *testing.T) {
		before := count1(t, r.vllm["p1"], pair.Succeeded)
		a := r.gateway().Send(within(t), traffic.Ask{Model: vllmenv.Served, Prompt: strings.Repeat(corpus, 4), MaxTokens: context1, Decode: "d1"})
		t.Logf("the client got: %d %+v", a.Status, a.Failure)
		if err := a.Typed(); err != nil || a.Failure == nil || a.Status/100 != 4 {
			t.Errorf("%v, %d", err, a.Status)
		}
		if n := count1(t, r.vllm["p1"], pair.Succeeded) - before; n != 0 {
			t.Errorf("P computed %.0f prompts for nothing", n)
		}
		rest(t)
	})
}
