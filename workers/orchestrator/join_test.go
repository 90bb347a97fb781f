package orchestrator

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/claimcheck/memcheck"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// orphaned is a handoff of gateway a that a worker goes on with after a died,
// before its first token; b and c are the gateways left.
func orphaned(t *testing.T) (f *fleetOf, release func()) {
	f = gateways(t)
	check := memcheck.New(nil)
	shared := func(c *Config) { c.Bodies = check }
	worker := f.add("w", shared)
	f.add("b", shared)
	f.add("c", shared)
	f.add("a", shared)
	f.temporal.drive = func(r *durableRun) {
		if !soon(func() bool { _, err := check.Body(t.Context(), "t", r.in.Plan.Attempt.Handoff); return err == nil }) {
			t.Error("no claim check was written")
		}
		handle(f.temporal, worker)(r)
	}
	f.temporal.reads = func(r *durableRun, at steps.ReaderAt) { // the workflow tells whom it named
		f.temporal.mu.Lock()
		token, in := r.token, r.in
		f.temporal.mu.Unlock()
		if err := worker.cfg.Remote.Planned(t.Context(), at, in.Plan, in.Route, token); err != nil {
			t.Errorf("the new reader was not told: %v", err)
		}
	}
	_, release = f.w.Hold(world.StepToken)
	fo := f.submit("a", ask("k"))
	if !soon(func() bool { return len(f.w.Visible()) == 1 }) {
		t.Fatal("nothing was committed")
	}
	f.kill("a")
	fo.Close()
	return f, release
}

func TestAClientWhoseGatewayDiedReadsOnAtAnother(t *testing.T) {
	f, release := orphaned(t)
	fo := f.submit("b", ask("k"))
	if !soon(func() bool { return f.temporal.reader("t/"+fo.Handoff()) == "b" }) {
		t.Fatal("history does not name the new reader")
	}
	release()
	text, last := read(t, fo)
	if text != world.Text || last.Finish != "stop" {
		t.Errorf("got %q, %+v", text, last)
	}
	if n := len(f.w.Calls()); n == 0 || slices.Contains(f.w.Calls(), "decode at d2 e1") {
		t.Errorf("calls %v", f.w.Calls())
	}
	f.clean()
}

func TestOfTwoGatewaysThatTakeOverOneReads(t *testing.T) {
	f, release := orphaned(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			fo, err := f.gate([]string{"b", "c"}[i%2]).Submit(t.Context(), ask("k"))
			if err != nil {
				t.Error(err)
				return
			}
			if text, last := read(t, fo); text != world.Text {
				t.Errorf("got %q, %+v", text, last)
			}
		})
	}
	soon(func() bool { return slices.Contains(f.temporal.methods(), steps.SignalReattach) })
	release()
	wg.Wait()
	f.clean()
}

func TestATakenOverHandoffIsCancelledByItsNewClient(t *testing.T) {
	f, release := orphaned(t)
	defer release()
	fo := f.submit("b", ask("k"))
	o := f.gate("b")
	if !soon(func() bool {
		s := o.hub.find("t", fo.Handoff())
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.attached.Epoch == 1
	}) {
		t.Fatal("the new reader is not attached")
	}
	fo.Close()
	if !soon(func() bool { return slices.Contains(f.temporal.methods(), "cancel") }) {
		t.Error("the workflow was not told")
	}
	f.clean()
}

// The client leaves between the naming and its answer: history names a reader
// that reads for nobody, so the handoff is cancelled.
func TestAClientThatLeavesWhileItsReaderIsNamedLeavesNoHandoff(t *testing.T) {
	f, release := orphaned(t)
	defer release()
	submitted, asked := make(chan Follower, 1), 0
	f.temporal.mu.Lock()
	f.temporal.reads = nil // whom it named has left: nobody can be told
	f.temporal.refuse = func(method string) error {
		if method != "query" {
			return nil
		}
		if asked++; asked != 2 { // the first is before the naming
			return nil
		}
		(<-submitted).Close()
		return serviceerror.NewCanceled("whoever asked has left")
	}
	f.temporal.mu.Unlock()
	submitted <- f.submit("b", ask("k"))
	if !soon(func() bool { return slices.Contains(f.temporal.methods(), "cancel") }) {
		t.Error("the workflow was not told")
	}
	f.clean()
}

func TestAStreamWhoseBeginningDNoLongerHoldsIsGone(t *testing.T) {
	f, release := orphaned(t)
	defer release()
	f.w.Refuse("d", handoff.StepDecode, handoff.Errorf(handoff.CodeGone, "the text was dropped"))
	if _, last := read(t, f.submit("b", ask("k"))); last.Err == nil || last.Err.Code != handoff.CodeGone {
		t.Errorf("told %+v", last)
	}
	f.clean()
}

func TestAnotherBodyDoesNotTakeOver(t *testing.T) {
	f, release := orphaned(t)
	defer release()
	f.w.Ledger.Empty() // so that only the history knows
	f.reregister()
	other := ask("k")
	other.Body = handoff.Digest{9}
	if _, last := read(t, f.submit("b", other)); last.Err == nil || last.Err.Code != handoff.CodeKeyReused {
		t.Errorf("told %+v", last)
	}
	if v := f.w.Visible(); len(v) != 1 {
		t.Errorf("the first client's attempt: %v", v)
	}
	if text, _ := func() (string, Event) { fo := f.submit("c", ask("k")); release(); return read(t, fo) }(); text != world.Text {
		t.Errorf("the first body got %q", text)
	}
	f.clean()
}

// reregister makes the engines known to an emptied ledger.
func (f *fleetOf) reregister() {
	f.t.Helper()
	for _, n := range []string{"p", "d", "d2"} {
		if err := f.w.Register(n); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, o := range f.gates {
		o.fleet.refresh(f.t.Context())
	}
}

func TestWithoutAnAnswerOfTheWorkflowNobodyReads(t *testing.T) {
	f, release := orphaned(t)
	defer release()
	f.temporal.refuse = func(method string) error {
		if method == "query" {
			return handoff.Errorf(handoff.CodeUnavailable, "no worker polls")
		}
		return nil
	}
	if _, last := read(t, f.submit("b", ask("k"))); last.Err == nil || last.Err.Code != handoff.CodeUnavailable {
		t.Errorf("told %+v", last)
	}
	if slices.Contains(f.temporal.methods(), steps.SignalReattach) {
		t.Error("it named itself in the dark")
	}
	f.temporal.refuse = nil
	id, err := publicID(ask("k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.gate("w").Cancel(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	f.clean()
}

func TestAnEmptiedLedgerMakesNoSecondRun(t *testing.T) {
	f := gateways(t, "a", "b")
	reached, release := f.w.Hold(world.StepToken)
	one := f.submit("a", ask("k"))
	<-reached
	f.w.Ledger.Empty()
	f.reregister()
	two := f.submit("b", ask("k")) // claims the key, and yields at the start
	if !soon(func() bool { s := f.gate("b").hub.find("t", two.Handoff()); return s.roleNow() == roleCopy }) {
		t.Error("it does not copy the first")
	}
	release()
	for _, fo := range []Follower{one, two} {
		if text, last := read(t, fo); text != world.Text {
			t.Errorf("got %q, %+v", text, last)
		}
	}
	f.clean()
}

func TestAStartAnsweredAsARepeatOfItselfGoesOn(t *testing.T) {
	f := gateways(t, "a")
	f.temporal.twice = true
	if text, last := read(t, f.submit("a", ask("k"))); text != world.Text {
		t.Errorf("%q, %+v", text, last)
	}
	f.clean()
}

// stale makes the ledger say that a dead gateway holds the key.
func (f *fleetOf) stale(id string) {
	f.t.Helper()
	got, err := f.w.Ledger.Claim(f.t.Context(), ledger.ClaimRequest{Tenant: "t", Key: keyHash(ask("k")), Body: handoff.Digest{1},
		Handoff: handoff.HandoffID(id + ".dead"), Owner: "gone", Window: time.Hour})
	if err != nil || !got.Mine {
		f.t.Fatalf("%+v, %v", got, err)
	}
}

func TestAClaimThatNoRunStandsBehindGivesWay(t *testing.T) {
	for name, status := range map[string]enumspb.WorkflowExecutionStatus{"no run": 0, "failed": enumspb.WORKFLOW_EXECUTION_STATUS_FAILED,
		"cancelled": enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED} {
		t.Run(name, func(t *testing.T) {
			f := gateways(t, "a")
			id, err := publicID(ask("k"))
			if err != nil {
				t.Fatal(err)
			}
			f.stale(id)
			if status != 0 {
				f.past(id, status)
			}
			if text, last := read(t, f.submit("a", ask("k"))); text != world.Text {
				t.Errorf("%q, %+v", text, last)
			}
			f.clean()
		})
	}
}

// past plants a run that ended.
func (f *fleetOf) past(id string, status enumspb.WorkflowExecutionStatus) {
	f.t.Helper()
	r, err := f.temporal.begin("t/"+id, steps.Input{}, map[string]any{memoNonce: "dead", memoOwner: "gone", memoBody: bodyText(handoff.Digest{1})}, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	f.temporal.end(r, status)
}

func TestACommittedOutcomeSticksThoughItsStreamIsNotHeld(t *testing.T) {
	f := gateways(t, "a")
	id, err := publicID(ask("k"))
	if err != nil {
		t.Fatal(err)
	}
	f.stale(id)
	f.past(id, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	if _, last := read(t, f.submit("a", ask("k"))); last.Err == nil || last.Err.Code != handoff.CodeGone {
		t.Errorf("told %+v", last)
	}
	if slices.Contains(f.temporal.methods(), "start") {
		t.Error("it ran again")
	}
	f.clean()
}

// Somebody else than the handoff ended its run, by Temporal's own means or by its
// clock: what that had come to nobody can say, so its key is not free (S13), also
// where the ledger forgot it.
func TestAKeyWhoseRunWasEndedFromOutsideIsNotFree(t *testing.T) {
	for name, status := range map[string]enumspb.WorkflowExecutionStatus{
		"terminated": enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, "timed out": enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT} {
		for _, forgot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, forgot %t", name, forgot), func(t *testing.T) {
				f := gateways(t, "a")
				id, err := publicID(ask("k"))
				if err != nil {
					t.Fatal(err)
				}
				if !forgot {
					f.stale(id)
				}
				f.past(id, status)
				if text, last := read(t, f.submit("a", ask("k"))); last.Err == nil || last.Err.Code != handoff.CodeGone {
					t.Errorf("told %q, %+v", text, last)
				}
				if f.temporal.statusOf("t/"+id) != status {
					t.Error("it ran again")
				}
				f.clean()
			})
		}
	}
}

// The ledger forgot the key when its window was over, Temporal retains the history
// for longer: the key is a new handoff's. Where the ledger forgot it before that,
// the history still tells that it is spent.
func TestAKeyIsFreeAfterItsWindowThoughTheHistoryIsRetained(t *testing.T) {
	for name, c := range map[string]struct {
		status enumspb.WorkflowExecutionStatus
		ago    time.Duration
		free   bool
	}{
		"after it":             {enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, 25 * time.Hour, true},
		"within it":            {enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, 23 * time.Hour, false},
		"terminated, after it": {enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, 25 * time.Hour, true},
		"refused, within it":   {enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := gateways(t, "a")
			id, err := publicID(ask("k"))
			if err != nil {
				t.Fatal(err)
			}
			f.past(id, c.status)
			f.temporal.mu.Lock()
			f.temporal.runs["t/"+id].ended = time.Now().Add(-c.ago)
			f.temporal.mu.Unlock()
			text, last := read(t, f.submit("a", ask("k")))
			if c.free && (text != world.Text || last.Finish == "") || !c.free && (last.Err == nil || last.Err.Code != handoff.CodeGone) {
				t.Errorf("%q, %+v", text, last)
			}
			f.clean()
		})
	}
}

func TestASettledKeyIsNotAskedOfTemporal(t *testing.T) {
	f := gateways(t, "a")
	id, err := publicID(ask("k"))
	if err != nil {
		t.Fatal(err)
	}
	f.stale(id)
	if err := f.w.Ledger.Settle(t.Context(), ledger.SettleRequest{Tenant: "t", Key: keyHash(ask("k")), Body: handoff.Digest{1},
		Handoff: handoff.HandoffID(id + ".dead"), Outcome: ledger.OutcomeCompleted, Window: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, last := read(t, f.submit("a", ask("k"))); last.Err == nil || last.Err.Code != handoff.CodeGone {
		t.Errorf("told %+v", last)
	}
	f.clean()
}

func TestAClientThatLeavesWhileItsKeyIsLookedUpEndsTheLookUp(t *testing.T) {
	f := gateways(t, "a", "b")
	reached, release := f.w.Hold(world.StepToken)
	one := f.submit("a", ask("k"))
	<-reached
	two := f.submit("b", ask("k"))
	two.Close()
	if !soon(func() bool { return f.gate("b").hub.find("t", two.Handoff()).isOver() }) {
		t.Error("the copy goes on")
	}
	release()
	if text, _ := read(t, one); text != world.Text {
		t.Errorf("the first client got %q", text)
	}
	f.clean()
}

func TestABodyIsFoundInMemoryElseByClaimCheck(t *testing.T) {
	check := memcheck.New(nil)
	b := newBodies(check, 1)
	in := steps.Input{Tenant: "t", Deadline: time.Minute, Plan: handoff.Plan{Attempt: handoff.Attempt{Handoff: "r"}}}
	if _, err := b.Body(t.Context(), "t", "r"); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("nowhere: %v", err)
	}
	if err := check.Put(t.Context(), in, activities.Body{Prompt: []byte("checked")}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Body(t.Context(), "t", "r"); err != nil || string(got.Prompt) != "checked" {
		t.Errorf("%q, %v", got.Prompt, err)
	}
	if err := b.keep(in, activities.Body{Prompt: []byte("kept")}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Body(t.Context(), "t", "r"); err != nil || string(got.Prompt) != "kept" {
		t.Errorf("%q, %v", got.Prompt, err)
	}
	in.Plan.Attempt.Handoff = "q"
	if err := b.keep(in, activities.Body{}); handoff.CodeOf(err) != handoff.CodeCapacity {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := newBodies(nil, 1).Body(t.Context(), "t", "r"); handoff.CodeOf(err).Advice() != handoff.NewEpoch {
		t.Errorf("without a claim check: %v", err)
	}
}

func TestABodyLeavesTheClaimCheckWithItsClient(t *testing.T) {
	check := memcheck.New(nil)
	f := gateways(t)
	f.add("a", func(c *Config) { c.Bodies = check })
	reached, release := f.w.Hold(world.StepToken)
	fo := f.submit("a", ask("k"))
	<-reached
	run := f.temporal.run("t/" + fo.Handoff()).in.Plan.Attempt.Handoff
	if !soon(func() bool { _, err := check.Body(t.Context(), "t", run); return err == nil }) {
		t.Error("no claim check was written")
	}
	release()
	read(t, fo)
	if !soon(func() bool {
		_, err := check.Body(t.Context(), "t", run)
		return handoff.CodeOf(err) == handoff.CodeGone
	}) {
		t.Error("what the client wrote stays")
	}
	f.clean()
}
