package vllm

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/workers/vllmenv"
)

// beside puts another D in the place of the pair's own, until the test ends.
func beside(t *testing.T, o vllmenv.Options, args ...string) *vllmenv.Engine {
	t.Helper()
	o, err := o.NIXL("kv_consumer", lease)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rig.Host.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(other.Kill(), rig.Fleet.Serve(context.Background(), rig.Native(flags...))); err != nil {
			t.Error(err)
		}
	})
	n := fleet.Native{Prefill: []string{rig.P.URL}, Decode: []string{other.URL}, Args: append(args, flags...)}
	if err := rig.Fleet.Serve(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return other
}

// prefills is how many requests P has computed.
func prefills(t *testing.T) float64 { return look(t, rig.P.URL).Sum(pair.Succeeded, "", "") }

func TestAPairOfTwoRevisionsIsRefusedBeforeThePrefill(t *testing.T) {
	second := filepath.Join(t.TempDir(), "r2") // of the same weights, which nobody can know
	if err := os.Symlink(rig.Env.Model, second); err != nil {
		t.Fatal(err)
	}
	beside(t, vllmenv.Options{Name: "other", Model: second})
	before := prefills(t)
	got, err := pair.Ask{Prompt: text(t, 0, 1), Tokens: 4}.Send(t.Context(), rig.URL())
	if err != nil || got.Ended() || got.Code == "" {
		t.Errorf("%s, %v", got, err)
	}
	t.Logf("the client got: %s", got)
	if n := prefills(t) - before; n != 0 {
		t.Errorf("P computed %.0f prompts for nothing", n)
	}
}

// P has computed by then: what it pins is freed by D's word, before its timer.
func TestWhatADRejectsIsToldInItsOwnWordsAndNotTriedAgain(t *testing.T) {
	strict := beside(t, vllmenv.Options{Name: "strict", Context: context4k, Args: []string{"--max-logprobs", "2"}})
	before := look(t, rig.P.URL)
	got, err := pair.Ask{Prompt: text(t, 0, 2), Tokens: 4, More: map[string]any{"logprobs": 5}}.Send(t.Context(), rig.URL())
	if err != nil || got.Status != http.StatusBadRequest || !strings.Contains(got.Message, "logprobs") {
		t.Errorf("%s, %v", got, err)
	}
	t.Logf("the client got: %s", got)
	eventually(t, "P and D hold nothing", func() bool { return empty(t, rig.P.URL) && empty(t, strict.URL) })
	now := look(t, rig.P.URL)
	if n := now.Sum(pair.Succeeded, "", "") - before.Sum(pair.Succeeded, "", ""); n != 1 {
		t.Errorf("P computed %.0f prompts, want the one that D refused", n)
	}
	// This D never fetched from this P, so that its refusal alone would not reach P.
	if n := now.Sum(pair.Expired, "", "") - before.Sum(pair.Expired, "", ""); n != 0 {
		t.Errorf("%.0f leases ended by P's timer", n)
	}
}

func TestADThatIsFullIsFoundBeforeThePrefill(t *testing.T) {
	small := beside(t, vllmenv.Options{Name: "small", CacheBytes: 9 * vllmenv.BlockBytes}, "--queue-wait", "-1s")
	first := send(t, pair.Ask{Prompt: text(t, 0, 2), Tokens: 800})
	eventually(t, "D is nearly full", func() bool { return look(t, small.URL).Sum(pair.Usage, "", "") > 0.4 })
	before := prefills(t)
	got, err := pair.Ask{Prompt: text(t, 1, 2), Tokens: 800}.Send(t.Context(), rig.URL())
	if err != nil || got.Status != http.StatusTooManyRequests || got.Code != "capacity" {
		t.Errorf("%s, %v", got, err)
	}
	if n := prefills(t) - before; n != 0 {
		t.Errorf("P computed %.0f prompts for nothing", n)
	}
	<-first.done
	if !first.got.Ended() {
		t.Errorf("the first: %s", first.got)
	}
}

func TestWhoWaitsForRoomAtDAndLeavesCostsPNothing(t *testing.T) {
	if err := rig.Fleet.Serve(t.Context(), rig.Native(append(flags, "--decode-concurrency", "1")...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rig.Fleet.Serve(context.Background(), rig.Native(flags...)); err != nil {
			t.Error(err)
		}
	})
	there, letGo := held(rig.InD)
	defer letGo()
	first := send(t, pair.Ask{Prompt: text(t, 0, 1), Tokens: 4})
	<-there
	before := prefills(t)
	second, third := send(t, pair.Ask{Prompt: text(t, 1, 1), Tokens: 4}), send(t, pair.Ask{Prompt: text(t, 2, 1), Tokens: 4})
	eventually(t, "two wait", func() bool {
		c, err := pair.Look(t.Context(), rig.URL())
		return err == nil && c.Sum("surehand_native_waiting", "", "") == 2
	})
	second.leave()
	<-second.done
	letGo()
	<-first.done
	<-third.done
	if !first.got.Ended() || !third.got.Ended() {
		t.Errorf("%s, %s", first.got, third.got)
	}
	if n := prefills(t) - before; n != 1 {
		t.Errorf("P computed %.0f prompts, want that of the third", n)
	}
	if second.got.Broken == nil {
		t.Errorf("the second: %s, %v", second.got, second.err)
	}
	rest(t)
}
