package vllm

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/workers/vllmenv"
)

// P writes into D's blocks, which D has told it of.
func TestPushedPromptsGiveTheTokensOfOneEngine(t *testing.T) {
	at := map[string]*vllmenv.Engine{}
	for role, name := range map[string]string{"kv_producer": "pushes", "kv_consumer": "is-pushed"} {
		o, err := vllmenv.Options{Name: name, CacheBytes: 32 * vllmenv.BlockBytes}.NIXL(role, lease)
		if err != nil {
			t.Fatal(err)
		}
		if at[role], err = rig.Host.Start(t.Context(), o.Push()); err != nil {
			t.Fatal(err)
		}
	}
	p, d := at["kv_producer"], at["kv_consumer"]
	t.Cleanup(func() {
		if err := errors.Join(p.Kill(), d.Kill(), rig.Fleet.Serve(context.Background(), rig.Native(flags...))); err != nil {
			t.Error(err)
		}
	})
	alone, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bare, err := pair.Ask{Prompt: text(t, 0, 2), Tokens: 8, Header: map[string]string{"X-Request-Id": "alone"}}.Bare(alone, p.URL, d.URL, nil)
	t.Logf("a router alone: %s, %v", bare, err)
	n := fleet.Native{Prefill: []string{p.URL}, Decode: []string{d.URL}, Args: append([]string{"--transfer", "nixl-push"}, flags...)}
	if err := rig.Fleet.Serve(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	before := look(t, d.URL)
	for i := range 4 {
		a := pair.Ask{Prompt: text(t, 1+i, 1+2*i), Tokens: 12}
		want, err := a.Send(t.Context(), rig.Plain.URL)
		if err != nil || !want.Ended() {
			t.Fatal(want, err)
		}
		got, err := a.Send(t.Context(), rig.URL())
		if err != nil || !got.Ended() || !slices.Equal(got.Tokens, want.Tokens) {
			t.Fatalf("%s, want %s, %v", got, want, err)
		}
	}
	now := look(t, d.URL)
	if got := now.Source(pair.External) - before.Source(pair.External); got == 0 || now.Source(pair.Local) != before.Source(pair.Local) {
		t.Errorf("D got %d prompt tokens by transfer, computed %d", got, now.Source(pair.Local)-before.Source(pair.Local))
	}
	eventually(t, "P holds nothing", func() bool { return empty(t, p.URL) })
	eventually(t, "D holds nothing", func() bool { return empty(t, d.URL) })
}
