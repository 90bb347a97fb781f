package operations

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestActsAreKeptAndCordonsStand(t *testing.T) {
	store := miniredis.RunT(t)
	c := redis.NewClient(&redis.Options{Addr: store.Addr(), MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	defer c.Close()
	s := New(c)
	for _, action := range []string{"cordon", "cancel"} {
		if err := s.Record(t.Context(), Entry{By: "alice", Action: action, On: "d1", Reason: "disk"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, e := range map[string]Entry{"no reason": {By: "a", Action: "b", On: "c", Reason: " "}, "nobody": {Action: "b", On: "c", Reason: "d"},
		"a long reason": {By: "a", Action: "b", On: "c", Reason: strings.Repeat("x", MaxReasonBytes+1)}} {
		if err := s.Record(t.Context(), e); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := s.Entries(t.Context(), 10)
	if err != nil || len(got) != 2 || got[0].Action != "cancel" || got[1].By != "alice" || got[0].At.IsZero() {
		t.Fatal(got, err)
	}
	for range 2 {
		if err := s.Cordon(t.Context(), "d1", "alice: disk", false); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := s.Cordons(t.Context()); err != nil || len(c) != 1 || c["d1"] != "alice: disk" {
		t.Fatal(c, err)
	}
	for range 2 {
		if err := s.Cordon(t.Context(), "d1", "", true); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := s.Cordons(t.Context()); err != nil || len(c) != 0 {
		t.Fatal(c, err)
	}
	store.Close()
	if err := s.Record(t.Context(), Entry{By: "a", Action: "b", On: "c", Reason: "d"}); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
}
