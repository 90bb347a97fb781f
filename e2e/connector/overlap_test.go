package connector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
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
func (r *engines) inTransfer(t *testing.T, model string) (running running, mark fleet.Mark, before uint64) {
	t.Helper()
	mark, before = r.Mark(), r.pulled(t)
	running = r.send(t, traffic.Ask{Model: model, Prompt: longPrompt(), MaxTokens: 4, Prefill: "p1", Decode: "d1"})
	await(t, "bytes come to D", func() bool { return r.pulled(t) > before })
	must(t, r.vllm["p1"].Pause())
	if slices.ContainsFunc(r.Since(mark), isSealed) {
		t.Error("P had computed the prompt: this run shows nothing")
	}
	return running, mark, before
}

func isSealed(e fleet.Event) bool { return e.Became("source", handoff.SourceSealed.String()) }

func (r *engines) overlaps(t *testing.T, model string) {
	running, mark, before := r.inTransfer(t, model)
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
			running, _, _ := r.inTransfer(t, model)
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
