package redisbodies

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workers/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ orchestrator.Check = (*Bodies)(nil)

func open(t *testing.T) (*Bodies, *miniredis.Miniredis) {
	t.Helper()
	m := miniredis.RunT(t)
	b, err := Open("redis://"+m.Addr(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, m
}

func input() steps.Input {
	return steps.Input{Tenant: "blue", Deadline: 10 * time.Second, Plan: handoff.Plan{Attempt: handoff.Attempt{Handoff: "h-1", Epoch: 1, Nonce: 1}}}
}

func TestABodyIsFoundUntilItsDeadline(t *testing.T) {
	b, m := open(t)
	want := activities.Body{Prompt: []byte("a\x00\xffb"), Stop: []string{"x"}}
	for range 2 { // a repeat has no second effect
		if err := b.Put(t.Context(), input(), want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Body(t.Context(), "blue", "h-1")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatal(got, err)
	}
	m.FastForward(input().Deadline + margin + time.Second)
	if _, err := b.Body(t.Context(), "blue", "h-1"); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal(err)
	}
}

func TestADroppedBodyIsGone(t *testing.T) {
	b, _ := open(t)
	if err := b.Put(t.Context(), input(), activities.Body{Prompt: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeat has no second effect
		if err := b.Drop(t.Context(), "blue", "h-1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Body(t.Context(), "blue", "h-1"); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal(err)
	}
}

func TestABodyIsItsTenantsAlone(t *testing.T) {
	b, _ := open(t)
	if err := b.Put(t.Context(), input(), activities.Body{Prompt: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Body(t.Context(), "red", "h-1"); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal(err)
	}
}

func TestWhatCannotBeStoredOrReadIsTyped(t *testing.T) {
	b, m := open(t)
	if err := b.Put(t.Context(), input(), activities.Body{Prompt: make([]byte, MaxBodyBytes)}); handoff.CodeOf(err) != handoff.CodeTooLarge {
		t.Error(err)
	}
	if err := m.Set(key("blue", "h-1"), "{secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Body(t.Context(), "blue", "h-1"); handoff.CodeOf(err) != handoff.CodeGone || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	m.Close()
	if _, err := b.Body(t.Context(), "blue", "h-1"); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Error(err)
	}
	if err := b.Put(t.Context(), input(), activities.Body{}); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Error(err)
	}
	retrying := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer retrying.Close()
	if _, err := New(retrying); err == nil {
		t.Error("a client that retries by itself was taken")
	}
}

func TestClearTextStaysOnThisHost(t *testing.T) {
	for url, code := range map[string]handoff.Code{
		"redis://redis.example:6379": handoff.CodeDenied, "http://127.0.0.1": handoff.CodeInvalid,
		"redis://localhost:6379": handoff.CodeNone, "rediss://redis.example:6379": handoff.CodeNone,
	} {
		b, err := Open(url, false)
		if handoff.CodeOf(err) != code {
			t.Errorf("%s: %v", url, err)
		}
		if b != nil {
			b.Close()
		}
	}
}
