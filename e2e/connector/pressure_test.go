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

const preemptions = "vllm:num_preemptions_total"

// tight is engines of so few blocks that vLLM takes them from who came last: P of
// 18, and so small steps that a prompt takes a hundred of them, d1 of 8, d2 of
// another revision, and d3, which wants a key that its front does not have.
func tight(s fleet.Seat) vllmenv.Options {
	o := options(s.ID)
	o.CacheBytes = 9 * vllmenv.BlockBytes // one block is nobody's
	if s.ID == "p1" {
		o.CacheBytes = 19 * vllmenv.BlockBytes
		o.Args = []string{"--max-num-batched-tokens", "16"}
	}
	if s.ID == "d3" {
		o.Args = []string{"--api-key", "another"}
	}
	return o
}

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

	t.Run("a decode whose blocks D takes back is computed again", func(t *testing.T) {
		before := count1(t, r.vllm["d1"], preemptions)
		ask := traffic.Ask{Prompt: promptOf(t, 300), MaxTokens: 450, Decode: "d1", Deadline: answerWithin} // grows to 6 blocks of 8
		want := plain(t, ask).Text                                                                         // before: D must have room when ours is placed
		streams, done := aside(t, r.vllm["d1"], promptOf(t, 100), 500)                                     // to 5
		<-streams
		a := <-send(t, ask)
		if err := a.Whole(); err != nil || a.Text != want {
			t.Errorf("%v, %q, want %q", err, a.Text, want)
		}
		if n := count1(t, r.vllm["d1"], preemptions) - before; n == 0 {
			t.Error("D took no blocks back")
		}
		if a.Usage.Recomputed != a.Usage.Prompt || a.Usage.Direct+a.Usage.Cached != 0 {
			t.Errorf("usage is %+v: all of the prompt was computed again", a.Usage)
		}
		<-done
		rest(t)
	})

	t.Run("a prefill whose blocks P takes back is computed again", func(t *testing.T) {
		before := count1(t, r.vllm["p1"], preemptions)
		ask := traffic.Ask{Prompt: promptOf(t, 900), MaxTokens: 8, Decode: "d1", Deadline: answerWithin}
		want := plain(t, ask).Text
		var ends []<-chan pair.Answer
		for range 6 {
			streams, done := aside(t, r.vllm["p1"], promptOf(t, 100), 280) // each grows to 2 blocks of 18 while the prompt, of 8, is computed, and then to 3
			<-streams
			ends = append(ends, done)
		}
		a := <-send(t, ask)
		if err := a.Whole(); err != nil || a.Text != want {
			t.Errorf("%v, %q, want %q", err, a.Text, want)
		}
		if n := count1(t, r.vllm["p1"], preemptions) - before; n == 0 {
			t.Error("P took no blocks back")
		}
		if a.Usage.Direct != a.Usage.Prompt {
			t.Errorf("usage is %+v, want all direct", a.Usage)
		}
		for _, done := range ends {
			<-done
		}
		rest(t)
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
