package native

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestTheGateLetsInInOrderAndForgetsWhoLeft(t *testing.T) {
	limit := 1
	g := newGate(func(string) int { return limit })
	first, err := g.enter(t.Context(), "m", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.enter(t.Context(), "m", 0); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := g.enter(ctx, "m", time.Minute); left <- err }()
	waiting(t, g, 1)
	got := make(chan func(), 1)
	go func() {
		leave, err := g.enter(t.Context(), "m", time.Minute)
		if err != nil {
			t.Error(err)
		}
		got <- leave
	}()
	waiting(t, g, 2)
	cancel()
	if err := <-left; handoff.CodeOf(err) != handoff.CodeCancelled {
		t.Error(err)
	}
	first()
	first() // a second leave is none
	second := <-got
	if g.at("m") != 1 {
		t.Errorf("%d inside", g.at("m"))
	}
	second()
	if len(g.inside) != 0 || len(g.waiting) != 0 || g.count != 0 {
		t.Errorf("%v %v %d", g.inside, g.waiting, g.count)
	}
}

func waiting(t *testing.T, g *gate, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		g.mu.Lock()
		count := g.count
		g.mu.Unlock()
		if count == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want %d", count, n)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestADThatDoesNotTellItsRoomIsGivenMoreAsItBegins(t *testing.T) {
	r := pair(t)
	s := r.byAddress[r.d[0].URL()]
	if s.limit() != windowFirst {
		t.Fatalf("began with %d", s.limit())
	}
	s.began(1)
	s.began(2)
	if s.limit() != 4 {
		t.Errorf("%d after two full windows", s.limit())
	}
	s.began(1)
	if s.limit() != 4 {
		t.Error("a window that is not full says nothing")
	}
	s.full(3)
	s.began(3)
	if s.limit() != 3 {
		t.Errorf("%d after a refusal", s.limit())
	}
	s.window.moved = time.Now().Add(-2 * learnedFor)
	s.began(3)
	if s.limit() != 4 {
		t.Errorf("%d, want one more after a while", s.limit())
	}
	told := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{Blocks: 100, BlockTokens: 16}}, nil)
	if s := told.byAddress[told.d[0].URL()]; s.limit() != 0 {
		t.Errorf("a D that tells its blocks is held to %d requests", s.limit())
	}
	fixed := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{}}, func(c *Config) { c.Concurrency = 7 })
	if s := fixed.byAddress[fixed.d[0].URL()]; s.limit() != 7 || fixed.limitOf("fake") != 7 {
		t.Errorf("configured limit is %d", s.limit())
	}
}

// The fleet looks once a minute here: that a D is gone is told by its sockets.
func TestADThatDiesIsOutBeforeTheNextLook(t *testing.T) {
	r := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{}}, func(c *Config) { c.Refresh = time.Minute })
	d := r.byAddress[r.rigURL(r.d, 0)]
	r.d[0].Kill()
	r.eventually("D is out", func() bool { _, _, up := d.known(); return !up })
}
