package connector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// longPrompt is of more than handoff.OverlapTokens tokens, and begins like no other.
func longPrompt() string {
	numbered++
	return fmt.Sprintf("%d of them: ", numbered) + strings.Repeat(corpus, 32)
}

func (r *engines) pulled(t *testing.T) uint64 {
	t.Helper()
	d, err := r.Daemon("td1").Describe(t.Context(), false)
	must(t, err)
	return d.GetPulledBytesTotal()
}

// inTransfer stops P once bytes have come to D. P then stands in the step that computes
// the prompt: what D has, it has read before the end of it.
func (r *engines) inTransfer(t *testing.T, a traffic.Ask) (running running, mark fleet.Mark, before uint64) {
	t.Helper()
	mark, before = r.Mark(), r.pulled(t)
	running = r.send(t, a)
	await(t, "bytes come to D", func() bool { return r.pulled(t) > before })
	must(t, r.vllm["p1"].Pause())
	if slices.ContainsFunc(r.Since(mark), isSealed) {
		t.Error("P had computed the prompt: this run shows nothing")
	}
	return running, mark, before
}

func longAsk(model string) traffic.Ask {
	return traffic.Ask{Model: model, Prompt: longPrompt(), MaxTokens: 4, Prefill: "p1", Decode: "d1"}
}

func isSealed(e fleet.Event) bool { return e.Became("source", handoff.SourceSealed.String()) }

func (r *engines) overlaps(t *testing.T, model string) {
	running, mark, before := r.inTransfer(t, longAsk(model))
	early := r.pulled(t) - before
	must(t, r.vllm["p1"].Resume())
	a := <-running.ended
	if err := a.Whole(); err != nil || a.Usage.Direct != a.Usage.Prompt || a.Usage.Prompt < handoff.OverlapTokens {
		t.Errorf("%v, %+v", err, a.Usage)
	}
	if !slices.ContainsFunc(r.Since(mark), isSealed) {
		t.Error("P never sealed")
	}
	t.Logf("%d of %d bytes were at D while P computed", early, r.pulled(t)-before)
}

// struck has something happen while a part of the bytes is at D.
func (r *engines) struck(t *testing.T, model string) {
	for what, blow := range map[string]func(running){
		"the client leaves":       func(running running) { running.leave() },
		"P is killed":             func(running) { must(t, r.vllm["p1"].Kill()) },
		"D is killed":             func(running) { must(t, r.vllm["d1"].Kill()) },
		"D's transferd is killed": func(running) { must(t, r.Process("td1").Restart(t.Context())) },
		"P's transferd is killed": func(running) { must(t, r.Process("tp1").Restart(t.Context())) },
	} {
		t.Run(what, func(t *testing.T) {
			running, _, _ := r.inTransfer(t, longAsk(model))
			blow(running)
			must(t, r.vllm["p1"].Resume())
			a := <-running.ended
			t.Logf("the client got: %d %q %+v %v", a.Status, a.Text, a.Failure, a.Broken)
			if what != "the client leaves" && a.Typed() != nil {
				t.Error(a.Typed())
			}
			for id, e := range r.vllm {
				select {
				case <-e.Gone():
					r.again(t, id)
				default:
				}
			}
			must(t, r.AtRest(t.Context(), restWithin))
		})
	}
	t.Run("the gateway is killed, whose client has nothing to come back with", func(t *testing.T) {
		_, mark := r.cutOff(t, longAsk(model))
		began := time.Now()
		must(t, r.AtRest(t.Context(), restWithin))
		t.Logf("all was given back within %s", time.Since(began).Round(10*time.Millisecond))
		out, err := r.Outcome(within(t), fleet.DefaultTenant, fault.PublicID(fault.Prefilled(r.Since(mark))[0]))
		if err != nil || out.Code != handoff.CodeGone.String() || out.Committed {
			t.Errorf("the history says %+v, %v", out, err)
		}
	})
	t.Run("the gateway is killed, whose client comes back with its key", func(t *testing.T) {
		ask := longAsk(model)
		ask.Key = "mine"
		r.cutOff(t, ask)
		again, refused := r.gateway().Insist(within(t), ask, answerWithin, 50*time.Millisecond)
		must(t, again.Whole())
		ask.Key = ""
		if want := r.gateway().Send(within(t), ask); want.Whole() != nil || again.Text != want.Text {
			t.Errorf("%q, want %q, %v", again.Text, want.Text, want.Whole())
		}
		t.Logf("refused %d times before: %+v", refused, again.Usage)
		must(t, r.AtRest(t.Context(), restWithin))
	})
}

// cutOff kills the gateway while a part of the bytes is at D, and starts it again.
func (r *engines) cutOff(t *testing.T, ask traffic.Ask) (a traffic.Answer, mark fleet.Mark) {
	t.Helper()
	running, mark, _ := r.inTransfer(t, ask)
	must(t, r.Process("g1").Restart(t.Context()))
	must(t, r.vllm["p1"].Resume())
	if a = <-running.ended; a.Broken == nil || a.Text != "" {
		t.Errorf("its connection did not break: %d %q %+v", a.Status, a.Text, a.Failure)
	}
	return a, mark
}

// exposed tells how long after P's seal D had everything, both ways in turns. It
// judges nothing: the machine may be busy.
func (r *engines) exposed(t *testing.T, model string) {
	const turns = 2
	took := map[string][]time.Duration{}
	for range turns {
		for _, p := range []string{"p1", "p2"} {
			mark := r.Mark()
			a := r.gateway().Send(within(t), traffic.Ask{Model: model, Prompt: longPrompt(), MaxTokens: 2, Prefill: p, Decode: "d1"})
			must(t, a.Whole())
			at := func(machine, state string) time.Time {
				e, err := r.Await(within(t), mark, func(e fleet.Event) bool { return e.Became(machine, state) })
				must(t, err)
				return e.At
			}
			sealed, validated := at("source", handoff.SourceSealed.String()), at("target", handoff.TargetValidated.String())
			took[p] = append(took[p], validated.Sub(sealed))
			t.Logf("%s: %d tokens, first token after %s, validated %s after the seal", p, a.Usage.Prompt, a.FirstToken, validated.Sub(sealed))
		}
	}
	for _, d := range took {
		slices.Sort(d)
	}
	t.Logf("not hidden by the prefill, of %d: layer by layer %s, serial %s", turns, took["p1"][turns/2], took["p2"][turns/2])
}
