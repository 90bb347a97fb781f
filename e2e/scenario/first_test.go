package scenario

import (
	"errors"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
)

// strikes is how often the moment is tried for: between the commit at transferd
// and its record in the history lie a few milliseconds.
const strikes = 8

// The worker dies after transferd has committed and before the history knows,
// and the store is emptied in the same moment. There is one owner, the client
// who asks again with the same key gets one stream or a typed error, and in the
// end nothing is held.
func TestTheWorkerDiesBetweenCommitAndItsRecordAndTheStoreIsEmptied(t *testing.T) {
	s := shared(t)
	hits := 0
	for try := range strikes {
		ask := s.ask(longPrompt, answerLong)
		ask.Key = "first-" + time.Now().Format(time.RFC3339Nano)
		ctx := within(t, 2*requestWithin)
		struck, err := fault.Strike(ctx, s.Fleet, s.g1(), ask, fault.Commit, func(fleet.Event) error {
			return errors.Join(s.Process("g1").Kill(), s.Empty(ctx))
		})
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := s.recorded(t, struck)
		if err != nil {
			t.Fatal(err)
		}
		if !recorded {
			hits++
		}
		died := time.Now()
		again := s.g2().Send(ctx, ask)
		if err := again.Typed(); err != nil {
			t.Errorf("the same key again, through the other gateway: %s", err)
		}
		if err := s.MemoryFree(ctx, restWithin); err != nil {
			t.Error(err)
		}
		memory := time.Since(died).Round(10 * time.Millisecond)
		if err := s.Process("g1").Start(ctx); err != nil {
			t.Fatal(err)
		}
		s.atRest(t)
		all := time.Since(died).Round(10 * time.Millisecond)
		if owners := fault.Committed(s.Since(struck.Mark)); len(owners) != 1 {
			t.Errorf("%d owners: %v", len(owners), owners)
		}
		t.Logf("try %d: struck before the record: %v; the client saw %d pieces; again: %s; memory was free after %s, all at rest after %s",
			try, !recorded, struck.Pieces, chaos.Verdict(again), memory, all)
		if t.Failed() || hits > 0 {
			break
		}
	}
	if hits == 0 {
		t.Errorf("in %d tries the worker never died before the record: this run shows nothing", strikes)
	}
	s.fine(t, s.g1())
}

// recorded says whether the history knew of the commit when the worker died.
func (s *stage) recorded(t *testing.T, struck fault.Struck) (bool, error) {
	h, err := s.History(within(t, requestWithin), fleet.DefaultTenant, fault.PublicID(struck.Attempt))
	if err != nil {
		return false, err
	}
	for _, e := range h.GetEvents() {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			return true, nil
		}
	}
	return false, nil
}
