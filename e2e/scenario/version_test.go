//go:build e2e

package scenario

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

func versioned(build string) []string {
	return []string{"--deployment-name", "scenario", "--build-id", build}
}

// Two versions of the workers run beside each other. A handoff stays on the
// version that began it, also when its worker dies; new ones that no gateway of
// theirs begins go where an operator said; and none of it costs a write more.
func TestAHandoffStaysOnTheVersionThatBeganIt(t *testing.T) {
	o := chaos.Options()
	o.GatewayArgs = versioned("one")
	s := open(t, o)
	ctx := within(t, 5*time.Minute)
	op := operator(t, s.GRPC["g1"])
	if v := versions(ctx, t, op); !slices.Equal(v, []string{"one current"}) {
		t.Fatalf("at the start there are %q", v)
	}
	commit, end := s.writes(ctx, t)
	t.Logf("%d writes of histories to the commit, %d to the end", commit, end)
	if commit > 2 || end > 5 {
		t.Errorf("%d writes to the commit and %d to the end, want at most 2 and 5", commit, end)
	}

	if err := s.AddGateway(ctx, "g3", versioned("two")...); err != nil {
		t.Fatal(err)
	}
	g3 := traffic.NewClient(s.HTTP["g3"])
	defer g3.Close()
	for name, c := range map[string]*traffic.Client{"one": s.g1(), "two": g3} {
		a := c.Send(ctx, s.ask(shortPrompt, 5))
		if err := a.Counted(5); err != nil {
			t.Error(err)
		} else if ran := s.ranOn(ctx, t, a.Handoff); !slices.Equal(ran, []string{name}) {
			t.Errorf("a handoff of a gateway of version %s ran on %v", name, ran)
		}
	}

	// Its worker dies in the prefill: the other one of the same version goes on.
	ask := s.ask(8000, 20)
	ask.Key = "stays"
	struck, err := fault.Strike(ctx, s.Fleet, s.g1(), ask, fault.Prefill, func(fleet.Event) error { return s.Process("g1").Kill() })
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.g2().Insist(ctx, ask, requestWithin, 100*time.Millisecond)
	if err := a.Counted(20); err != nil {
		t.Errorf("after its gateway died: %s; the first client saw %s", err, chaos.Verdict(struck.Answer))
	}
	if ran := s.ranOn(ctx, t, a.Handoff); slices.Contains(ran, "two") {
		t.Errorf("a handoff of version one ran on %v", ran)
	}

	op = operator(t, s.GRPC["g3"])
	if _, err := op.Deploy(ctx, &operatev1.DeployRequest{Build: "three", Reason: "a typing error"}); handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeInvalid {
		t.Errorf("a version that nobody runs is deployed: %v", err)
	}
	if _, err := op.Deploy(ctx, &operatev1.DeployRequest{Build: "two"}); handoff.CodeOf(rpc.FromStatus(err)) != handoff.CodeInvalid {
		t.Errorf("an act without a reason: %v", err)
	}
	if _, err := op.Deploy(ctx, &operatev1.DeployRequest{Build: "two", Reason: "release"}); err != nil {
		t.Fatal(err)
	}
	if v := versions(ctx, t, op); !slices.Contains(v, "two current") || slices.Contains(v, "one current") {
		t.Errorf("after the deploy there are %q", v)
	}
	if err := s.Process("g1").Start(ctx); err != nil {
		t.Fatal(err)
	}
	if v := versions(ctx, t, op); !slices.Contains(v, "two current") {
		t.Errorf("a worker of the version before took over: %q", v)
	}
	for _, c := range []*traffic.Client{s.g1(), s.g2(), g3} {
		s.fine(t, c)
	}
	s.atRest(t)
}

func versions(ctx context.Context, t *testing.T, op operatev1.OperatorClient) (out []string) {
	t.Helper()
	a, err := op.Versions(ctx, &operatev1.VersionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range a.GetVersions() {
		is := v.GetBuild()
		if v.GetCurrent() {
			is += " current"
		}
		out = append(out, is)
	}
	return out
}

// ranOn are the versions that ran tasks of a handoff that is over. Every task
// has to say that it is pinned.
func (s *stage) ranOn(ctx context.Context, t *testing.T, id string) (out []string) {
	t.Helper()
	if _, err := s.Outcome(ctx, fleet.DefaultTenant, id); err != nil {
		t.Fatal(err)
	}
	h, err := s.History(ctx, fleet.DefaultTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range h.GetEvents() {
		done := e.GetWorkflowTaskCompletedEventAttributes()
		if done == nil {
			continue
		}
		if b := done.GetVersioningBehavior(); b != enumspb.VERSIONING_BEHAVIOR_PINNED {
			t.Errorf("event %d of %s is %s", e.GetEventId(), id, b)
		}
		if v := done.GetDeploymentVersion(); v.GetDeploymentName() != "scenario" {
			out = append(out, fmt.Sprintf("%s/%s", v.GetDeploymentName(), v.GetBuildId()))
		} else if !slices.Contains(out, v.GetBuildId()) {
			out = append(out, v.GetBuildId())
		}
	}
	return out
}

// writes counts those of one handoff's history until its commit and its end. The
// server tells its counters once a second, so the answer takes longer.
func (s *stage) writes(ctx context.Context, t *testing.T) (commit, end int) {
	t.Helper()
	const told = 1300 * time.Millisecond
	count := func() int {
		select {
		case <-time.After(told):
		case <-ctx.Done():
		}
		n, err := s.HistoryWrites(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	still := func() (n int) { // what the start of the fleet wrote is over
		for before := -1; n != before; {
			before, n = n, count()
		}
		return n
	}
	before := still()
	ask := s.ask(longPrompt, int(3*told/step))
	over := s.g1().Begin(ctx, ask, 1)
	commit = count() - before
	if a := <-over; a.Counted(ask.MaxTokens) != nil {
		t.Fatal(chaos.Verdict(a))
	}
	s.atRest(t)
	return commit, count() - before
}
