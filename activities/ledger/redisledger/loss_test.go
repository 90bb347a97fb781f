package redisledger

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/ledger/ledgertest"
	"github.com/surehand/surehand/contracts/handoff"
)

const lease = time.Minute

func attempt(n int) handoff.Attempt {
	return handoff.Attempt{Handoff: "h1", Epoch: 1, Nonce: handoff.Nonce(n)}
}

func reserve(t testing.TB, l *Ledger, n int, blocks uint32) handoff.Code {
	return handoff.CodeOf(l.Reserve(t.Context(), ledger.ReserveRequest{
		Engine: "d1", Incarnation: 3, Attempt: attempt(n), Blocks: blocks, Lease: lease,
	}))
}

func rebuild(t testing.TB, l *Ledger, held map[handoff.Attempt]uint32) {
	t.Helper()
	err := l.Rebuild(t.Context(), ledger.RebuildRequest{Engine: "d1", Incarnation: 3, Total: 10, Held: held, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
}

func born(t testing.TB, l *Ledger) string {
	t.Helper()
	b, err := l.Born(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// awaitBorn waits until the client's pool has noticed that the server is back.
func (l *Ledger) awaitBorn(t *testing.T) {
	t.Helper()
	end := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := l.Born(t.Context())
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatal(err)
		}
	}
}

func want(t testing.TB, what string, got, code handoff.Code) {
	t.Helper()
	if got != code {
		t.Fatalf("%s: %s, want %s", what, got, code)
	}
}

// refusesUntilRebuilt is what every loss must lead to, and how it ends.
func refusesUntilRebuilt(t *testing.T, l *Ledger, before string) {
	t.Helper()
	if after := born(t, l); after == before {
		t.Fatalf("a loss, yet still born %s", after)
	}
	want(t, "reserve after a loss", reserve(t, l, 2, 4), handoff.CodeUnavailable)
	rebuild(t, l, map[handoff.Attempt]uint32{attempt(1): 6})
	want(t, "too much after the rebuild", reserve(t, l, 2, 5), handoff.CodeCapacity)
	want(t, "reserve after the rebuild", reserve(t, l, 2, 4), handoff.CodeNone)
}

func TestServerKilledAndRestartedEmptyNeedsARebuild(t *testing.T) {
	s := startServer(t)
	l := s.open()
	rebuild(t, l, nil)
	want(t, "reserve", reserve(t, l, 1, 6), handoff.CodeNone)
	before := born(t, l)

	s.kill()
	want(t, "reserve without a server", reserve(t, l, 2, 4), handoff.CodeUnavailable)
	s.start()
	l.awaitBorn(t)
	refusesUntilRebuilt(t, l, before)
}

// The server comes back with its data, but nobody can say with all of it.
func TestServerRestartedFromItsLogNeedsARebuild(t *testing.T) {
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	l := s.open()
	rebuild(t, l, nil)
	want(t, "reserve", reserve(t, l, 1, 6), handoff.CodeNone)
	before := born(t, l)
	s.kill()
	s.start()
	s.await(func(c *redis.Client) error { // the data is there: the key alone would not tell
		return c.HGet(t.Context(), seatKeys("d1")[0], "life").Err()
	})
	l.awaitBorn(t)
	refusesUntilRebuilt(t, l, before)
}

func TestPromotedReplicaNeedsARebuild(t *testing.T) {
	first := startServer(t)
	second := startServer(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", first.port))
	l := first.open()
	rebuild(t, l, nil)
	want(t, "reserve", reserve(t, l, 1, 6), handoff.CodeNone)
	before := born(t, l)
	second.await(func(c *redis.Client) error {
		return c.ZScore(t.Context(), seatKeys("d1")[1], attempt(1).String()).Err()
	})
	first.kill()
	second.await(func(c *redis.Client) error { return c.SlaveOf(t.Context(), "NO", "ONE").Err() })
	refusesUntilRebuilt(t, second.open(), before)
}

// A server that is stopped answers nobody, and does what it was asked once it
// goes on: the answer is unknown, the repeat is harmless.
func TestStoppedServerIsUnknown(t *testing.T) {
	s := startServer(t)
	l, hurried := s.open(), s.openWithin(CallTimeout)
	rebuild(t, l, nil)
	s.signal(syscall.SIGSTOP)
	answered := make(chan handoff.Code, 1)
	go func() { answered <- reserve(t, hurried, 1, 6) }()
	select {
	case code := <-answered:
		want(t, "reserve of a stopped server", code, handoff.CodeUnavailable)
	case <-time.After(patience):
		t.Error("no answer") // a stopped server would never give one
	}
	s.signal(syscall.SIGCONT)
	want(t, "repeat", reserve(t, l, 1, 6), handoff.CodeNone)
	want(t, "what is left", reserve(t, l, 2, 5), handoff.CodeCapacity)
	want(t, "what is left", reserve(t, l, 2, 4), handoff.CodeNone)
}

func TestServerThatForgotItsScriptsGetsTheirText(t *testing.T) {
	s := startServer(t)
	l := s.open()
	forget := func() {
		s.await(func(c *redis.Client) error { return c.ScriptFlush(t.Context()).Err() })
	}
	if err := l.Register(t.Context(), ledgertest.Seen("d1", 3), lease); err != nil {
		t.Fatal(err)
	}
	rebuild(t, l, nil)
	forget()
	want(t, "reserve", reserve(t, l, 1, 6), handoff.CodeNone)
	forget()
	all, err := l.Engines(t.Context())
	if err != nil || len(all) != 1 || all[0].Used != 6 {
		t.Fatalf("engines %v, %v", all, err)
	}
}

func TestEveryKeyEnds(t *testing.T) {
	s := startServer(t)
	l, ctx := s.open(), t.Context()
	rebuild(t, l, nil)
	c := ledger.ClaimRequest{Tenant: "t", Key: "k", Body: handoff.Digest{1}, Handoff: "h1", Owner: "g", Window: lease}
	r := ledger.ReserveRequest{Engine: "d1", Incarnation: 3, Attempt: attempt(1), Blocks: 1, Lease: lease}
	for what, err := range map[string]error{
		"claim and reserve": second(l.ClaimAndReserve(ctx, c, r)),
		"unclaim":           l.Unclaim(ctx, "t", "k2", "h2"),
		"settle":            l.Settle(ctx, ledger.SettleRequest{Tenant: "t", Key: "k3", Body: c.Body, Handoff: "h3", Outcome: "completed", Window: lease}),
		"release":           l.Release(ctx, "d2", attempt(2)),
		"mark":              l.MarkCancelled(ctx, "h1", lease),
		"register":          l.Register(ctx, ledgertest.Seen("d1", 3), lease),
		"born":              second(l.Born(ctx)),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr()})
	defer client.Close()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil || len(keys) < 9 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, k := range keys {
		if ttl := client.PTTL(ctx, k).Val(); ttl <= 0 {
			t.Errorf("%s lives for ever (%s)", k, ttl)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Gateways reserve and release while the server is killed under them, empty;
// after the rebuild no block is promised twice, whatever they were told.
func TestNoBlockIsPromisedTwiceAfterALossUnderLoad(t *testing.T) {
	s := startServer(t)
	l := s.open()
	rebuild(t, l, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	halt := sync.OnceFunc(func() { close(stop) })
	defer halt()
	for g := range 8 {
		wg.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				n := g*1_000_000 + i
				if reserve(t, l, n, 3) == handoff.CodeUnavailable {
					<-time.After(time.Millisecond) // no busy loop on a dead server
				}
				if i%2 == 0 {
					// Unknown is fine: the lease, or the rebuild, ends it.
					_ = l.Release(t.Context(), "d1", attempt(n))
				}
			}
		})
	}
	s.kill()
	s.start()
	l.awaitBorn(t)
	want(t, "reserve before the rebuild", reserve(t, l, 9_000_000, 1), handoff.CodeUnavailable)
	rebuild(t, l, map[handoff.Attempt]uint32{attempt(1): 4})
	halt()
	wg.Wait()
	if err := l.Register(t.Context(), ledgertest.Seen("d1", 3), lease); err != nil {
		t.Fatal(err)
	}
	all, err := l.Engines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if u := all[0].Used; u < 4 || u > 10 {
		t.Fatalf("%d of 10 blocks promised", u)
	}
}
