package activities

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// rig is the steps over a world of one P and one D.
type rig struct {
	*Steps
	w  *world.World
	in steps.StepInput

	mu      sync.Mutex
	told    []handoff.Attempt
	ended   []string
	refusal error // of the reader
	giveUp  bool
	local   bool
	counted map[handoff.Step]handoff.Code
}

func newRig(t *testing.T) *rig {
	w, err := world.New("p", "d")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{w: w, local: true, counted: map[handoff.Step]handoff.Code{}}
	r.Steps = &Steps{Ledger: w.Ledger, Engines: w, Movers: w, Readers: r, Placer: placing{r}, Bodies: r, Attempts: NewAttempts(8), Observer: r,
		Log: slog.New(slog.DiscardHandler), SerialBelow: 16, Local: func(steps.ReaderAt) bool { return r.local }}
	t.Cleanup(r.Attempts.Close)
	in := steps.Input{Tenant: "t", ID: "h", Key: "key", Model: world.Model, Revision: world.Revision, PromptTokens: 39, Route: w.Route("p", "d"),
		Sampling: steps.Sampling{MaxTokens: 5}, Deadline: time.Minute, Lease: handoff.LeaseDefault, Window: time.Hour, Record: steps.RecordRequest,
		Plan: handoff.Plan{Attempt: handoff.Attempt{Handoff: "h.1", Epoch: 1, Nonce: 1}, P: w.Seat("p"), D: w.Seat("d"), BodyDigest: handoff.Digest{1}}}
	r.in = steps.StepInput{Request: in, Reader: steps.ReaderAt{Reader: handoff.Reader{Process: "g", Incarnation: 1, Number: 1}}}
	return r
}

func (r *rig) GiveUp(context.Context, steps.ReaderAt, handoff.Attempt) (bool, error) {
	return r.giveUp, r.refusal
}

func (r *rig) Planned(_ context.Context, _ steps.ReaderAt, p handoff.Plan, _ steps.Route, _ handoff.Token) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, p.Attempt)
	return r.refusal
}

func (r *rig) Ended(_ context.Context, _ steps.ReaderAt, _ handoff.Attempt, c handoff.Code, _ string) error {
	r.ended = append(r.ended, c.String())
	return r.refusal
}

// placing is the rig as a Placer: an Observer's Step has the same name.
type placing struct{ *rig }

func (placing) Step(handoff.Attempt, handoff.Step, error) {}

func (r placing) Place(context.Context, steps.Input, []handoff.EngineID) (handoff.Seat, handoff.Seat, steps.Route, error) {
	return r.w.Seat("p"), r.w.Seat("d"), r.w.Route("p", "d"), nil
}

func (placing) Begin(handoff.Plan, uint32) error { return nil }

func (*rig) Body(context.Context, string, handoff.HandoffID) (Body, error) {
	return Body{Prompt: []byte("prompt")}, nil
}

func (r *rig) Step(step handoff.Step, code handoff.Code, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted[step] = code
}

func mustDo(t *testing.T, fn stepFunc, in steps.StepInput) steps.Output {
	t.Helper()
	out, err := fn(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryStepMayBeRepeated(t *testing.T) {
	r := newRig(t)
	first := mustDo(t, r.Reserve, r.in)
	r.Attempts.Forget(r.in.Request.Plan.Attempt) // as in another process
	if again := mustDo(t, r.Reserve, r.in); *again.Token != *first.Token {
		t.Errorf("another token: %s, %s", first.Token, again.Token)
	}
	mustDo(t, r.Prefill, r.in)
	moved := mustDo(t, r.Transfer, r.in)
	r.Attempts.Forget(r.in.Request.Plan.Attempt)
	mustDo(t, r.Reserve, r.in)
	if out := mustDo(t, r.Commit, r.in); out.State != "committed" {
		t.Errorf("commit answered %s", out.State)
	}
	if out := mustDo(t, r.Commit, r.in); out.State != "committed" || moved.Bytes != 128 {
		t.Errorf("a repeated commit answered %s", out.State)
	}
	in := r.in
	in.Hard = true
	for range 2 {
		if out := mustDo(t, r.UndoTransfer, in); out.Verdict != handoff.VerdictOver {
			t.Errorf("released, the target is %v", out.Verdict)
		}
		mustDo(t, r.UndoPrefill, in)
		mustDo(t, r.UndoReserve, in)
	}
	if left := r.w.Left(); len(left) > 0 || r.Attempts.Len() > 0 {
		t.Errorf("left: %v, %d attempts", left, r.Attempts.Len())
	}
}

func TestATransferJoinsReserveAndPrefill(t *testing.T) {
	r := newRig(t)
	if out := mustDo(t, r.Transfer, r.in); out.Lane != "memory" {
		t.Errorf("%+v", out)
	}
	mustDo(t, r.Reserve, r.in)
	mustDo(t, r.Prefill, r.in)
	count := 0
	for _, c := range r.w.Calls() {
		if strings.HasPrefix(c, "reserve") || strings.HasPrefix(c, "prefill") {
			count++
		}
	}
	if count != 2 {
		t.Errorf("the engines were asked %v", r.w.Calls())
	}
}

// ai-dynamo/nixl#1754: the operator's word that only one transport will do reaches D's
// daemon, which refuses another before a byte moves.
func TestATransferUsesTheRequiredLaneOrNone(t *testing.T) {
	r := newRig(t)
	r.RequireLane = "rdma"
	if _, err := r.Transfer(t.Context(), r.in); handoff.CodeOf(err) != handoff.CodeMismatch {
		t.Errorf("without that lane: %v", err)
	}
	r = newRig(t)
	r.RequireLane = "memory"
	if out := mustDo(t, r.Transfer, r.in); out.Lane != "memory" {
		t.Errorf("%+v", out)
	}
}

func TestAShortPromptIsPulledOnlyOnceItIsSealed(t *testing.T) {
	for _, short := range []bool{true, false} {
		r := newRig(t)
		if short {
			r.SerialBelow = 1000
		}
		reached, release := r.w.Hold(world.StepCompute)
		pulled, _ := r.w.Hold(handoff.StepTransfer)
		done := make(chan error, 1)
		go func() {
			_, err := r.Transfer(context.Background(), r.in)
			done <- err
		}()
		<-reached // the source is open, the state not computed
		if short {
			select {
			case <-pulled:
				t.Error("the pull of a short prompt began before it was sealed")
			case <-time.After(20 * time.Millisecond):
			}
		} else {
			<-pulled
		}
		release()
		r.Attempts.Stop(r.in.Request.Plan.Attempt, handoff.Errorf(handoff.CodeCancelled, "enough"))
		if err := <-done; handoff.CodeOf(err) != handoff.CodeCancelled {
			t.Errorf("short %v: %v", short, err)
		}
	}
}

func TestTheReaderIsToldByTheReserveOnlyInItsOwnProcess(t *testing.T) {
	r := newRig(t)
	if out := mustDo(t, r.Reserve, r.in); !out.Told || len(r.told) != 1 {
		t.Errorf("told %v, %v", out.Told, r.told)
	}
	r.local = false // another reader is named, by the time that a lost task is done again
	if out := mustDo(t, r.Reserve, r.in); out.Told {
		t.Error("what an earlier reader was told counts for its successor")
	}
	r = newRig(t)
	r.local = false
	r.refusal = handoff.Errorf(handoff.CodeUnavailable, "no answer")
	if out := mustDo(t, r.Reserve, r.in); out.Told || len(r.told) != 0 {
		t.Errorf("told %v, %v", out.Told, r.told)
	}
	r = newRig(t)
	r.refusal = handoff.Errorf(handoff.CodeGone, "the client left")
	if _, err := r.Reserve(t.Context(), r.in); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("reserved for nobody: %v", err)
	}
}

func TestACommitByAnotherProcessLeavesTheLeaseToTheReader(t *testing.T) {
	for _, local := range []bool{true, false} {
		r := newRig(t)
		r.local = local
		mustDo(t, r.Transfer, r.in)
		mustDo(t, r.Commit, r.in)
		if kept := r.Attempts.Len() == 1; kept != local {
			t.Errorf("local %v: kept %v", local, kept)
		}
	}
}

func TestTheVerdictOfAnUndo(t *testing.T) {
	type verdicts struct{ target, source handoff.Verdict }
	for name, c := range map[string]struct {
		prepare func(*testing.T, *rig)
		hard    bool
		want    verdicts
	}{
		"unknown attempt":    {func(*testing.T, *rig) {}, false, verdicts{handoff.VerdictClosed, handoff.VerdictClosed}},
		"reserved":           {func(t *testing.T, r *rig) { mustDo(t, r.Reserve, r.in) }, false, verdicts{handoff.VerdictClosed, handoff.VerdictClosed}},
		"validated":          {func(t *testing.T, r *rig) { mustDo(t, r.Transfer, r.in) }, false, verdicts{handoff.VerdictClosed, handoff.VerdictOver}},
		"committed":          {commit, false, verdicts{handoff.VerdictCommitted, handoff.VerdictOver}},
		"committed, hard":    {commit, true, verdicts{handoff.VerdictOver, handoff.VerdictOver}},
		"another life":       {func(t *testing.T, r *rig) { restart(t, r) }, false, verdicts{handoff.VerdictUnknown, handoff.VerdictUnknown}},
		"another life after": {func(t *testing.T, r *rig) { commit(t, r); restart(t, r) }, true, verdicts{handoff.VerdictUnknown, handoff.VerdictUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.prepare(t, r)
			in := r.in
			in.Hard = c.hard
			got := verdicts{mustDo(t, r.UndoTransfer, in).Verdict, mustDo(t, r.UndoPrefill, in).Verdict}
			if got != c.want {
				t.Errorf("target %s, source %s; want %s, %s", got.target, got.source, c.want.target, c.want.source)
			}
		})
	}
}

func commit(t *testing.T, r *rig) {
	mustDo(t, r.Transfer, r.in)
	mustDo(t, r.Commit, r.in)
}

func restart(t *testing.T, r *rig) {
	for _, n := range []string{"p", "d"} {
		if err := r.w.Restart(n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnUndoThatComesFirstRefusesWhatComesLate(t *testing.T) {
	r := newRig(t)
	if err := r.UndoHeadStart(t.Context(), r.in.Request); err != nil {
		t.Fatal(err)
	}
	for name, fn := range map[string]stepFunc{"reserve": r.Reserve, "prefill": r.Prefill, "transfer": r.Transfer, "commit": r.Commit} {
		if _, err := fn(t.Context(), r.in); handoff.CodeOf(err) != handoff.CodeClosed {
			t.Errorf("%s after the undo: %v", name, err)
		}
	}
	if left := r.w.Left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestASilentDKeepsNeitherPNorTheLedgerWaiting(t *testing.T) {
	r := newRig(t)
	mustDo(t, r.Reserve, r.in)
	mustDo(t, r.Prefill, r.in)
	reached, release := r.w.Hold(handoff.StepUndoTransfer)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.ReleaseNow(ctx, r.in.Request)
		done <- err
	}()
	<-reached
	for end := time.Now().Add(5 * time.Second); len(r.w.Left()) > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("held behind a silent D: %v", r.w.Left())
		}
	}
	cancel()
	if err := <-done; handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("told %v", err)
	}
}

func TestTheReadersWordAsAVerdict(t *testing.T) {
	for _, c := range []struct {
		given   bool
		refusal error
		want    handoff.Verdict
		code    handoff.Code
	}{
		{true, nil, handoff.VerdictClosed, handoff.CodeNone},
		{false, nil, handoff.VerdictCommitted, handoff.CodeNone},
		{true, handoff.Errorf(handoff.CodeStaleIncarnation, ""), handoff.VerdictUnknown, handoff.CodeNone},
		{true, handoff.Errorf(handoff.CodeGone, ""), handoff.VerdictUnknown, handoff.CodeNone},
		{true, handoff.Errorf(handoff.CodeUnavailable, ""), handoff.VerdictNone, handoff.CodeUnavailable},
		{true, errors.New("untyped"), handoff.VerdictNone, handoff.CodeUnavailable},
	} {
		r := newRig(t)
		r.giveUp, r.refusal = c.given, c.refusal
		out, err := r.AskReader(t.Context(), r.in)
		if out.Verdict != c.want || handoff.CodeOf(err) != c.code || out.Reader == nil || *out.Reader != r.in.Reader.Reader {
			t.Errorf("%+v: %+v, %v", c, out, err)
		}
	}
}

func TestAPlanThatFollowsIsOfTheSameHandoffAndBody(t *testing.T) {
	r := newRig(t)
	out := mustDo(t, r.Steps.Place, r.in)
	a, b := r.in.Request.Plan, *out.Plan
	if b.Attempt.Handoff != a.Attempt.Handoff || b.Attempt.Epoch != 2 || b.Attempt.Nonce == a.Attempt.Nonce || b.Attempt.Nonce == 0 ||
		b.BodyDigest != a.BodyDigest || b.Reader != r.in.Reader.Reader || out.Route == nil {
		t.Errorf("plan %+v after %+v", b, a)
	}
}

func TestWatchLooksAndTouchesNothing(t *testing.T) {
	r := newRig(t)
	commit(t, r)
	for range 2 {
		if out := mustDo(t, r.Watch, r.in); out.Verdict != handoff.VerdictCommitted {
			t.Errorf("a held target is %s", out.Verdict)
		}
	}
	r.w.Pass(2 * handoff.LeaseDefault)
	if out := mustDo(t, r.Watch, r.in); out.Verdict != handoff.VerdictOver {
		t.Errorf("an expired target is %s", out.Verdict)
	}
}

func TestHowAKeyIsSettled(t *testing.T) {
	for want, o := range map[string]steps.Outcome{
		"completed":     {Committed: true, Finish: "stop"},
		"stream_broken": {Committed: true, Code: "stream_broken"},
		"free":          {Code: "capacity"},
	} {
		r := newRig(t)
		key := ledger.ClaimRequest{Tenant: "t", Key: "key", Body: handoff.Digest{1}, Handoff: "h.1", Owner: "g", Window: time.Hour}
		if _, err := r.w.Ledger.Claim(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		in := r.in
		in.Outcome = &o
		for range 2 {
			mustDo(t, r.Settle, in)
		}
		key.Handoff, key.Owner = "other", "other"
		got, err := r.w.Ledger.Claim(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if is := string(got.Outcome); got.Mine && want != "free" || !got.Mine && is != want {
			t.Errorf("%+v left the key %+v", o, got)
		}
	}
	r := newRig(t)
	in := r.in
	in.Request.Record, in.Outcome = steps.RecordHandoff, &steps.Outcome{Committed: true}
	mustDo(t, r.Settle, in)
	in.Request.Record, in.Outcome = steps.RecordHandoff, &steps.Outcome{Committed: true, Finish: "stop"}
	mustDo(t, r.Settle, in) // a final outcome follows a committed one
	in.Request.Key = ""
	mustDo(t, r.Settle, in)
}

func TestWhatAStepNeedsIsDemanded(t *testing.T) {
	r := newRig(t)
	for name, fn := range map[string]stepFunc{"settle": r.Settle, "end": r.End, "tell": r.Tell} {
		if _, err := fn(t.Context(), r.in); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := r.in
	in.Outcome = &steps.Outcome{Code: "engine"}
	mustDo(t, r.End, in)
	in.Token = &handoff.Token{}
	mustDo(t, r.Tell, in)
	if !slices.Equal(r.ended, []string{"engine"}) || len(r.told) != 1 {
		t.Errorf("ended %v, told %v", r.ended, r.told)
	}
}

// environment runs steps as Temporal does.
func environment(t *testing.T, r *rig) *testsuite.TestActivityEnvironment {
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(r.activity(handoff.StepReserve, r.Reserve), activity.RegisterOptions{Name: "reserve"})
	env.RegisterActivityWithOptions(r.activity(handoff.StepUndoTransfer, r.UndoTransfer), activity.RegisterOptions{Name: "undo-transfer"})
	return env
}

func TestAResetRunPlansNothingButUndoes(t *testing.T) {
	r := newRig(t)
	env := environment(t, r)
	in := r.in
	in.OriginalRunID = "the first run"
	_, err := env.ExecuteActivity("reserve", in)
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != "reset" || !app.NonRetryable() {
		t.Errorf("a reset run reserved: %v", err)
	}
	if len(r.w.Calls()) > 0 {
		t.Errorf("it asked %v", r.w.Calls())
	}
	if _, err := env.ExecuteActivity("undo-transfer", in); err != nil {
		t.Errorf("a reset run cannot undo: %v", err)
	}
}

func TestARefusalCrossesTemporalTyped(t *testing.T) {
	for _, code := range handoff.Codes() {
		out := steps.Output{Engine: "d", StartMicros: 3}
		err := applicationError(out, handoff.Errorf(code, "%s", strings.Repeat("x", 2000)))
		var app *temporal.ApplicationError
		if !errors.As(err, &app) {
			t.Fatalf("%s: %v", code, err)
		}
		var told steps.Output
		if handoff.ParseCode(app.Type()) != code || app.NonRetryable() == (code.Advice() == handoff.RetrySame) ||
			len(app.Message()) > steps.MaxDetailBytes || app.Details(&told) != nil || told.Engine != "d" {
			t.Errorf("%s crossed as %s, final %v, %d bytes, %+v", code, app.Type(), app.NonRetryable(), len(app.Message()), told)
		}
	}
	if err := applicationError(steps.Output{}, nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	var app *temporal.ApplicationError
	if err := applicationError(steps.Output{}, errors.New("raw")); !errors.As(err, &app) || app.Type() != "unavailable" || app.NonRetryable() {
		t.Errorf("an untyped failure crossed as %v", err)
	}
}

func TestANormalActivityStopsBeatingWhenItEnds(t *testing.T) {
	r := newRig(t)
	env := environment(t, r)
	in := r.in
	in.OriginalRunID = "default-test-run-id"
	if _, err := env.ExecuteActivity("reserve", in); err != nil {
		t.Fatal(err)
	}
	if code, ok := r.counted[handoff.StepReserve]; !ok || code != handoff.CodeNone {
		t.Errorf("observed %v, %v", code, ok)
	} // goleak finds a heart that goes on
}

func TestEveryStepOfTheContractIsRegisteredAndHasAnUndo(t *testing.T) {
	r := newRig(t)
	table := r.table()
	for name := range table {
		if steps.Undo[name] == "" {
			t.Errorf("%s has no undo, nor a reason for none", name)
		}
	}
	for name := range steps.Undo {
		if table[name] == nil && name != handoff.StepAwaitReader { // which the workflow does by itself
			t.Errorf("%s is not registered", name)
		}
	}
}
