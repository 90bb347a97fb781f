//go:build e2e

package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/workflows"
)

// A fleet of the release before is upgraded under load, half of each kind first,
// so that every kind works with every other kind of both releases; then half of
// it is taken back. No request fails, and in each mix every pair of P and D is
// served through every gateway. Every history that either release wrote replays
// on the workflow of now.
func TestAnUpgradeUnderLoadFailsNoRequest(t *testing.T) {
	now, old := releases(t)
	s := openWith(t, old, chaos.Options())
	s.pairs(t, "old only")
	newer := func(p *fleet.Process) { p.Use(programOf(now, p)) }
	older := func(p *fleet.Process) { p.Use(programOf(old, p)) }
	for _, stage := range []struct {
		name   string
		change func(*fleet.Process)
		of     []string
	}{
		{"a new P and its daemon, a new D's daemon only", newer, []string{"tp1", "p1", "td2"}},
		{"a new gateway", newer, []string{"g1"}},
		{"all new but the other gateway", newer, []string{"td1", "d1", "tp2", "p2", "d2"}},
		{"all new", newer, []string{"g2"}},
		{"the gateways taken back, then half of the engines", older, []string{"g1", "g2", "tp1", "p1", "d2"}},
	} {
		roll(t, s, stage.of, stage.change)
		s.pairs(t, stage.name)
	}
	s.atRest(t)
	s.replays(t)
}

// The gateway and worker of the release before dies in a prefill: the worker of
// now goes on with its handoff, and the client finds it there by its key.
func TestANewWorkerGoesOnWithAnOldOnesHandoff(t *testing.T) {
	now, old := releases(t)
	for _, c := range []struct {
		name          string
		first, second fleet.Programs
	}{{"new after old", old, now}, {"old after new", now, old}} {
		t.Run(c.name, func(t *testing.T) {
			s := openWith(t, c.first, chaos.Options())
			ctx := within(t, 4*requestWithin)
			s.Process("g2").Use(c.second.Surehand)
			if err := s.Process("g2").Restart(ctx); err != nil {
				t.Fatal(err)
			}
			ask := s.ask(8000, 20)
			ask.Key = "taken-over"
			struck, err := fault.Strike(ctx, s.Fleet, s.g1(), ask, fault.Prefill, func(fleet.Event) error {
				return s.Process("g1").Kill()
			})
			if err != nil {
				t.Fatal(err)
			}
			a, refused := s.g2().Insist(ctx, ask, requestWithin, 100*time.Millisecond)
			if err := a.Counted(20); err != nil {
				t.Errorf("%s; the first client saw %s", err, chaos.Verdict(struck.Answer))
			}
			t.Logf("whole after %d refusals", refused)
			if err := s.Heal(ctx); err != nil {
				t.Error(err)
			}
			s.atRest(t)
			s.replays(t)
		})
	}
}

func releases(t *testing.T) (now, old fleet.Programs) {
	t.Helper()
	now = fleettest.Programs(t, programs)
	old, err := fleet.Release(t.Context(), now, fleet.Previous)
	if errors.Is(err, fleet.ErrNoRelease) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return now, old
}

func programOf(p fleet.Programs, of *fleet.Process) string {
	if of.Kind() == "transferd" {
		return p.Transferd
	}
	return p.Surehand
}

// openWith is open with programs of one's own choice.
func openWith(t *testing.T, p fleet.Programs, o fleet.Options) *stage {
	t.Helper()
	s, err := chaos.Open(t.Context(), p, o)
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &stage{s}
}

// pairs has every pair of P and D serve a long and a short request through every
// gateway; a breaker may keep away from one for a moment after a restart.
func (s *stage) pairs(t *testing.T, when string) {
	t.Helper()
	ctx := within(t, 2*requestWithin)
	if err := s.Serves(ctx); err != nil {
		t.Fatalf("%s: %s", when, err)
	}
	for gateway, c := range s.Clients {
		for _, p := range []string{"p1", "p2"} {
			for _, d := range []string{"d1", "d2"} {
				for _, n := range []int{shortPrompt, longPrompt} {
					ask := s.ask(n, 5)
					ask.Prefill, ask.Decode = p, d
					a, _ := c.Insist(ctx, ask, 10*time.Second, 100*time.Millisecond)
					if err := a.Counted(5); err != nil {
						t.Errorf("%s: %s to %s through %s: %s", when, p, d, gateway, err)
					} else if a.Usage.Direct == 0 || a.Usage.Recomputed > 0 {
						t.Errorf("%s: %s to %s through %s: nothing was handed over: %+v", when, p, d, gateway, a.Usage)
					}
				}
			}
		}
	}
}

// replays runs every history that Temporal holds on the workflow of now.
func (s *stage) replays(t *testing.T) {
	t.Helper()
	ctx, n := context.WithoutCancel(t.Context()), 0
	ids, err := s.Handoffs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var workers []string
	for _, id := range ids {
		h, err := s.History(ctx, fleet.DefaultTenant, id)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, e := range h.GetEvents() {
			if w := e.GetWorkflowTaskCompletedEventAttributes().GetIdentity(); w != "" && !slices.Contains(workers, w) {
				workers = append(workers, w)
			}
		}
		r := worker.NewWorkflowReplayer()
		r.RegisterWorkflowWithOptions(workflows.Handoff, workflow.RegisterOptions{Name: steps.Workflow})
		if err := r.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), h); err != nil {
			t.Error(fmt.Errorf("%s: %w\n%s", id, err, fleet.Tell(h)))
		}
		n++
	}
	if n == 0 || len(workers) < 2 {
		t.Errorf("%d histories of %d workers are no proof", n, len(workers))
	}
	t.Logf("%d histories of %d workers' lives replay", n, len(workers))
}
