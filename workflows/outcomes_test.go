package workflows_test

import (
	"os"
	"path/filepath"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// ending is how a stored history went, as far as an outcome tells apart.
type ending struct {
	steps.Outcome
	in      steps.Input
	steered []steps.Steer
	resumed bool
	status  enumspb.EventType
}

// ways are all in which a handoff can end, or come to its end.
var ways = []struct {
	name string
	is   func(ending) bool
}{
	{"completed by its first epoch", func(e ending) bool { return e.Code == "" && e.Attempt.Epoch == 1 && e.Finish != "" }},
	{"completed by a later one", func(e ending) bool { return e.Code == "" && e.Attempt.Epoch > 1 && e.Finish != "" && !e.resumed }},
	{"over at its commit", func(e ending) bool { return e.Code == "" && e.in.Record == steps.RecordHandoff }},
	{"cancelled before its commit", func(e ending) bool { return e.Code == code(handoff.CodeCancelled) && !e.Committed }},
	{"cancelled after it", func(e ending) bool { return e.Code == code(handoff.CodeCancelled) && e.Committed }},
	{"refused by what failed, before its commit", func(e ending) bool {
		return e.Code == code(handoff.CodeUnavailable) && !e.Committed && e.status == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED
	}},
	{"broken after its first token", func(e ending) bool { return e.Code == code(handoff.CodeStreamBroken) && !e.resumed }},
	{"aborted after its commit", func(e ending) bool { return e.Code == code(handoff.CodeAborted) }},
	{"out of time", func(e ending) bool { return e.Code == code(handoff.CodeDeadline) }},
	{"unknown: nobody could tell", func(e ending) bool { return e.Code == code(handoff.CodeOutcomeUnknown) }},
	{"reset", func(e ending) bool { return e.Code == code(handoff.CodeReset) }},
	{"resumed and completed", func(e ending) bool { return e.resumed && e.Code == "" }},
	{"not resumed", func(e ending) bool { return e.resumed && e.Code == code(handoff.CodeStreamBroken) }},
	{"replaced by an operator", func(e ending) bool { return e.Code == "" && steered(e, true, false) }},
	{"replaced by an operator who names engines", func(e ending) bool { return e.Code == "" && steered(e, true, true) }},
	{"pinned by an operator", func(e ending) bool {
		return e.Code == "" && e.Attempt.Epoch > 1 && len(e.steered) == 1 && steered(e, false, true)
	}},
	{"pinned, and let go of again", func(e ending) bool {
		return e.Code == "" && e.Attempt.Epoch > 1 && len(e.steered) == 2 && steered(e, false, false)
	}},
}

// unseen are the codes that no history of ours ends with, and why.
var unseen = map[handoff.Code]string{
	handoff.CodeKeyReused: "refused before there is a workflow",
	handoff.CodeGone:      "what a client is told of a stream that is over",
}

// carried are the codes of failed steps that an outcome passes on as they are when
// no other epoch helps: the same path as that of unavailable.
var carried = []handoff.Code{handoff.CodeNotReady, handoff.CodeStaleEpoch, handoff.CodeStaleIncarnation, handoff.CodeStaleToken, handoff.CodeConflict,
	handoff.CodeClosed, handoff.CodeCapacity, handoff.CodeMismatch, handoff.CodeIntegrity, handoff.CodeNotValidated, handoff.CodeProgress,
	handoff.CodeLease, handoff.CodeEngine, handoff.CodeInvalid, handoff.CodeTooLarge, handoff.CodeDenied, handoff.CodeInternal}

func code(c handoff.Code) string { return c.String() }

// steered says whether an operator's last word was this one.
func steered(e ending, now, named bool) bool {
	if len(e.steered) == 0 {
		return false
	}
	last := e.steered[len(e.steered)-1]
	return last.Now == now && (last.Pin != steps.Pin{}) == named
}

// Every way to end has a stored history, and every code of the protocol that an
// outcome can have is one of them, or is said to be none (S18).
func TestEveryOutcomeHasAStoredHistory(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no history is stored", err)
	}
	found, codes := map[string]bool{}, map[string]bool{}
	for _, path := range files {
		e := endingOf(t, path)
		codes[e.Code] = true
		for _, w := range ways {
			found[w.name] = found[w.name] || w.is(e)
		}
	}
	for _, w := range ways {
		if !found[w.name] {
			t.Errorf("no stored history: %s", w.name)
		}
	}
	for _, c := range carried {
		codes[code(c)] = true
	}
	for _, c := range handoff.Codes() {
		if _, told := unseen[c]; !told && !codes[code(c)] {
			t.Errorf("no stored history ends with %s, and nobody says why", c)
		}
	}
}

func endingOf(t *testing.T, path string) (e ending) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h, err := client.HistoryFromJSON(file, client.HistoryJSONOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(from *commonpb.Payloads, into any) {
		if err := converter.GetDefaultDataConverter().FromPayloads(from, into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, x := range h.GetEvents() {
		e.status = x.GetEventType()
		switch e.status {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
			read(x.GetWorkflowExecutionStartedEventAttributes().GetInput(), &e.in)
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
			in := x.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput()
			if in.GetName() == steps.UpdateSteer {
				var s steps.Steer
				read(in.GetArgs(), &s)
				e.steered = append(e.steered, s)
			}
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
			if a := x.GetWorkflowExecutionSignaledEventAttributes(); a.GetSignalName() == steps.SignalEnded {
				var end steps.Ended
				read(a.GetInput(), &end)
				e.resumed = e.resumed || end.Resumed != nil
			}
		}
		if out := outcomeIn(x); out != nil {
			read(out, &e.Outcome)
		}
	}
	return e
}

// outcomeIn is where an event that ends a run keeps its outcome.
func outcomeIn(x *historypb.HistoryEvent) *commonpb.Payloads {
	switch x.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		return x.GetWorkflowExecutionCompletedEventAttributes().GetResult()
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		return x.GetWorkflowExecutionFailedEventAttributes().GetFailure().GetApplicationFailureInfo().GetDetails()
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		return x.GetWorkflowExecutionCanceledEventAttributes().GetDetails()
	}
	return nil
}
