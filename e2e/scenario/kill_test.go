package scenario

import (
	"testing"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
)

// core are the cells of a run without patience: each victim and each phase.
var core = map[string]chaos.Phase{"g1": chaos.Commit, "p1": chaos.Prefill, "d1": chaos.Decode, "tp1": chaos.Transfer, "td1": chaos.Reserve,
	"redis": chaos.Transfer, "temporal": chaos.Decode}

// Each process is killed in each phase, one at a time. Before the first token
// the request is answered or refused with a type; after it the stream ends with
// a typed error or is not touched at all. Asked again with its key, through the
// other gateway, it is the same sampling, even where the first gateway died. At
// rest nothing is held. The other faults of the matrix are cmd/chaos's.
func TestAnyOneProcessMayDieInAnyPhase(t *testing.T) {
	t.Parallel() // the only one of these on the shared fleet
	for _, cell := range chaos.All() {
		if cell.Fault != "kill" || !patient && core[cell.Victim] != cell.Phase {
			continue
		}
		t.Run(cell.Victim+"/"+string(cell.Phase), func(t *testing.T) {
			r := shared(t).Run(t.Context(), cell)
			t.Logf("%s · again: %s", r.Verdict, r.Again)
			for _, broken := range r.Broken {
				t.Error(broken)
			}
		})
	}
}

// P dies in a prefill that is long enough to be a normal activity. Nobody listens
// where it was, which is proof: neither it nor who waits for it is asked for again
// and again before the other P computes.
func TestALongPrefillWhosePDiesIsFencedAtOnce(t *testing.T) {
	s := shared(t)
	ctx := within(t, 2*requestWithin)
	struck, err := fault.Strike(ctx, s.Fleet, s.g1(), s.ask(8000, 20), fault.Prefill, func(fleet.Event) error { return s.Process("p1").Kill() })
	if err != nil {
		t.Fatal(err)
	}
	if err := struck.Answer.Counted(20); err != nil {
		t.Fatal(err)
	}
	out, err := s.Outcome(ctx, fleet.DefaultTenant, struck.Answer.Handoff)
	if err != nil || out.Code != "" || out.Attempt.Epoch != 2 || out.Prefill != "p2" {
		t.Errorf("the outcome is %+v %v", out, err)
	}
	h, err := s.History(ctx, fleet.DefaultTenant, struck.Answer.Handoff)
	if err != nil {
		t.Fatal(err)
	}
	const most = 2 // the one that broke, and one more
	scheduled := map[int64]string{}
	fenced := false
	for _, e := range h.GetEvents() {
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			name := e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName()
			scheduled[e.GetEventId()] = name
			fenced = fenced || name == string(handoff.StepPlace)
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
			a := e.GetActivityTaskStartedEventAttributes()
			t.Logf("%s: %d tries", scheduled[a.GetScheduledEventId()], a.GetAttempt())
			if a.GetAttempt() > most {
				t.Errorf("%s was tried %d times", scheduled[a.GetScheduledEventId()], a.GetAttempt())
			}
		}
	}
	if !fenced {
		t.Errorf("no other plan was placed: %s", fleet.Tell(h))
	}
	oneOwner(t, s.Since(struck.Mark))
}
