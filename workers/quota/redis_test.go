package quota

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// two gateways that share one store.
func two(t *testing.T) (a, b *Redis, store *miniredis.Miniredis) {
	t.Helper()
	store = miniredis.RunT(t)
	make := func() *Redis {
		c := redis.NewClient(&redis.Options{Addr: store.Addr(), MaxRetries: -1, Protocol: 2, DisableIdentity: true})
		r := New(c, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { r.give.Wait(); c.Close() })
		return r
	}
	return make(), make(), store
}

func refused(t *testing.T, err error, limit string) *Refused {
	t.Helper()
	var r *Refused
	if !errors.As(err, &r) || r.Limit != limit || handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Fatalf("%v, want a refusal of %s", err, limit)
	}
	return r
}

func TestTokensInFlightHoldAcrossGateways(t *testing.T) {
	a, b, _ := two(t)
	l := Limits{TokensInFlight: 100}
	give, err := a.Take(t.Context(), "blue", l, 60)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Take(t.Context(), "blue", l, 60)
	refused(t, err, "tokens_in_flight")
	if _, err := b.Take(t.Context(), "red", l, 60); err != nil {
		t.Fatal("another tenant's tokens count: ", err)
	}
	if _, err := b.Take(t.Context(), "blue", l, 40); err != nil {
		t.Fatal(err)
	}
	give()
	give() // twice gives once
	a.give.Wait()
	if _, err := b.Take(t.Context(), "blue", l, 61); err == nil {
		t.Fatal("what was given back was counted twice")
	}
	if _, err := b.Take(t.Context(), "blue", l, 60); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Take(t.Context(), "blue", l, 101); handoff.CodeOf(err) != handoff.CodeTooLarge {
		t.Fatal("what can never fit is told to come again: ", err)
	}
}

func TestRequestsASecondHoldAcrossGateways(t *testing.T) {
	a, b, store := two(t)
	now := time.Now()
	store.SetTime(now)
	l := Limits{RequestsPerSecond: 2, Burst: 3}
	for i, r := range []*Redis{a, b, a} {
		if _, err := r.Take(t.Context(), "blue", l, 1); err != nil {
			t.Fatal(i, err)
		}
	}
	_, err := b.Take(t.Context(), "blue", l, 1)
	if r := refused(t, err, "requests_per_second"); r.After <= 0 || r.After > 500*time.Millisecond {
		t.Fatal("come again after ", r.After)
	}
	store.SetTime(now.Add(500 * time.Millisecond))
	if _, err := b.Take(t.Context(), "blue", l, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Take(t.Context(), "blue", l, 1); err == nil {
		t.Fatal("half a second brought two requests")
	}
}

func TestADeadGatewaysTokensEndByLeaseAndALiveOnesDoNot(t *testing.T) {
	dead, live, store := two(t)
	l := Limits{TokensInFlight: 100}
	now := time.Now()
	store.SetTime(now)
	for _, r := range []*Redis{dead, live} {
		if _, err := r.Take(t.Context(), "blue", l, 50); err != nil {
			t.Fatal(err)
		}
	}
	store.SetTime(now.Add(Lease * 3 / 4))
	live.renew(t.Context())
	store.SetTime(now.Add(Lease + time.Millisecond))
	_, err := live.Take(t.Context(), "blue", l, 51)
	refused(t, err, "tokens_in_flight")
	if _, err := live.Take(t.Context(), "blue", l, 50); err != nil {
		t.Fatal("the dead gateway's tokens still count: ", err)
	}
}

func TestAnEmptiedStoreHearsOfWhatIsInFlight(t *testing.T) {
	a, b, store := two(t)
	l := Limits{TokensInFlight: 100}
	if _, err := a.Take(t.Context(), "blue", l, 90); err != nil {
		t.Fatal(err)
	}
	store.FlushAll()
	a.renew(t.Context())
	_, err := b.Take(t.Context(), "blue", l, 20)
	refused(t, err, "tokens_in_flight")
}

func TestNobodyIsLetPastALimitThatCannotBeLookedAt(t *testing.T) {
	a, _, store := two(t)
	store.Close()
	if _, err := a.Take(t.Context(), "blue", Limits{RequestsPerSecond: 1}, 1); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
	if _, err := a.Take(t.Context(), "blue", Limits{}, 1); err != nil {
		t.Fatal("a tenant without limits asked: ", err)
	}
}

func TestRunRenewsUntilItIsStopped(t *testing.T) {
	a, _, _ := two(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	stop()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it runs on")
	}
}
