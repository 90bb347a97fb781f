package activities

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/mover"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// renewals counts what each daemon and the ledger are asked to renew.
type renewals struct {
	mu    sync.Mutex
	calls map[string][]int
	stuck string
}

func (r *renewals) Mover(address string) (mover.Mover, error) {
	if address == "bad" {
		return nil, handoff.Errorf(handoff.CodeDenied, "not loopback")
	}
	return renewing{nil, r, address}, nil
}

type renewing struct {
	mover.Mover
	*renewals
	address string
}

func (r renewing) Renew(ctx context.Context, targets, sources []handoff.Attempt, _ time.Duration) ([]handoff.Attempt, error) {
	if r.address == r.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.note(r.address, len(targets), len(sources))
	return nil, nil
}

func (r *renewals) note(where string, n ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[where] = append(r.calls[where], n...)
}

type renewingLedger struct {
	ledger.Ledger
	*renewals
}

func (r renewingLedger) Renew(_ context.Context, e handoff.EngineID, as []handoff.Attempt, _ time.Duration) ([]handoff.Attempt, error) {
	r.note("ledger "+string(e), len(as))
	return nil, nil
}

func (r *renewals) Step(handoff.Step, handoff.Code, time.Duration) { r.note("failed", 1) }

func keepMany(t *testing.T, n int, route steps.Route) *Attempts {
	a := NewAttempts(n)
	t.Cleanup(a.Close)
	for i := range n {
		p := planned
		p.Attempt.Nonce, p.D.Engine = handoff.Nonce(i+1), "d"
		if err := a.Keep(p, route); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func TestLeasesAreRenewedADaemonAtATimeWithinItsLimit(t *testing.T) {
	r := &renewals{calls: map[string][]int{}}
	s := &Steps{Movers: r, Ledger: renewingLedger{nil, r}, Observer: r,
		Attempts: keepMany(t, renewMost+1, steps.Route{P: steps.Endpoint{Control: "p"}, D: steps.Endpoint{Control: "d"}})}
	s.renew(t.Context(), time.Minute)
	for where, want := range map[string][]int{"d": {renewMost, 0, 1, 0}, "p": {0, renewMost, 0, 1}, "ledger d": {renewMost, 1}} {
		if !slices.Equal(r.calls[where], want) {
			t.Errorf("%s: %v, want %v", where, r.calls[where], want)
		}
	}
}

func TestOneDaemonForBothSidesIsAskedOnce(t *testing.T) {
	r := &renewals{calls: map[string][]int{}}
	s := &Steps{Movers: r, Ledger: renewingLedger{nil, r}, Observer: r,
		Attempts: keepMany(t, 2, steps.Route{P: steps.Endpoint{Control: "x"}, D: steps.Endpoint{Control: "x"}})}
	s.renew(t.Context(), time.Minute)
	if !slices.Equal(r.calls["x"], []int{2, 2}) {
		t.Errorf("asked %v", r.calls["x"])
	}
}

func TestAStuckDaemonDelaysNoOther(t *testing.T) {
	r := &renewals{calls: map[string][]int{}, stuck: "p"}
	s := &Steps{Movers: r, Ledger: renewingLedger{nil, r}, Observer: r,
		Attempts: keepMany(t, 1, steps.Route{P: steps.Endpoint{Control: "p"}, D: steps.Endpoint{Control: "d"}})}
	s.renew(t.Context(), 40*time.Millisecond)
	if !slices.Equal(r.calls["d"], []int{1, 0}) || len(r.calls["failed"]) != 1 {
		t.Errorf("calls %v", r.calls)
	}
}

func TestRenewalGoesOnUntilItIsStopped(t *testing.T) {
	r := &renewals{calls: map[string][]int{}}
	s := &Steps{Movers: r, Ledger: renewingLedger{nil, r}, Observer: r,
		Attempts: keepMany(t, 1, steps.Route{P: steps.Endpoint{Control: "bad"}, D: steps.Endpoint{Control: "d"}})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.RenewLeases(ctx, 8*time.Millisecond)
		close(done)
	}()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		n := len(r.calls["d"])
		r.mu.Unlock()
		if n >= 6 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("leases are not renewed")
		}
	}
	cancel()
	<-done
}
