package orchestrator

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/activities/world"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

func TestASubmitStreamsTheAnswerAndLeavesNothing(t *testing.T) {
	f := gateways(t, "a")
	text, last := read(t, f.submit("a", ask("k")))
	if text != world.Text || last.Finish != "stop" || last.Usage.Direct == 0 || last.Usage.Prompt != last.Usage.Direct { // as D counts
		t.Errorf("%q, %+v", text, last)
	}
	f.clean()
}

func TestAStartedInputIsSmallAndHoldsNoPrompt(t *testing.T) {
	f := gateways(t, "a")
	read(t, f.submit("a", ask("k")))
	for _, r := range f.temporal.runs {
		raw, err := json.Marshal(r.in)
		if err != nil || len(raw) > steps.MaxPayloadBytes || strings.Contains(string(raw), "the prompt") {
			t.Errorf("%d bytes, %v: %s", len(raw), err, raw)
		}
		t.Logf("the input has %d bytes, %d of them why", len(raw), len(r.in.Route.Why))
	}
}

func TestARepeatOfAKeyJoinsTheSameStream(t *testing.T) {
	f := gateways(t, "a")
	reached, release := f.w.Hold(world.StepToken)
	first := f.submit("a", ask("k"))
	<-reached
	second := f.submit("a", ask("k"))
	if first.Handoff() != second.Handoff() || first.Joined() || !second.Joined() {
		t.Errorf("joined %v, %v", first.Joined(), second.Joined())
	}
	release()
	for _, fo := range []Follower{first, second, f.submit("a", ask("k"))} { // the last one after the end
		if text, _ := read(t, fo); text != world.Text {
			t.Errorf("got %q", text)
		}
	}
	f.clean()
}

func TestAKeyUsedWithAnotherBodyIsRefused(t *testing.T) {
	f := gateways(t, "a", "b")
	read(t, f.submit("a", ask("k")))
	other := ask("k")
	other.Body = handoff.Digest{2}
	for _, g := range []string{"a", "b"} {
		if _, err := f.gates[g].Submit(t.Context(), other); handoff.CodeOf(err) != handoff.CodeKeyReused {
			t.Errorf("%s: %v", g, err)
		}
	}
	f.clean()
}

// A submit under another body that is still looked up does not hold the key: the
// body that does is not refused for it.
func TestABodyThatIsLookedUpRefusesNoOther(t *testing.T) {
	f := gateways(t, "a")
	o := f.gates["a"]
	id, err := publicID(ask("k"))
	if err != nil {
		t.Fatal(err)
	}
	other, s, _, err := o.hub.join(ask("k").Tenant, id, handoff.Digest{2})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	got := make(chan error, 1)
	go func() {
		fo, err := o.Submit(t.Context(), ask("k"))
		if err == nil {
			_, _ = read(t, fo)
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("decided before the other was: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	o.refuse(s, handoff.Errorf(handoff.CodeKeyReused, "the idempotency key was used with another body"))
	if err := <-got; err != nil {
		t.Error(err)
	}
	f.clean()
}

func TestWithoutAKeyEverySubmitIsItsOwn(t *testing.T) {
	f := gateways(t, "a")
	one, two := f.submit("a", ask("")), f.submit("a", ask(""))
	if one.Handoff() == two.Handoff() {
		t.Error("one handoff for two submits")
	}
	read(t, one)
	read(t, two)
	f.clean()
}

func TestWhatIsMalformedIsRefusedBeforeAnythingIsTaken(t *testing.T) {
	f := gateways(t, "a")
	for name, c := range map[string]struct {
		change func(*Request)
		code   handoff.Code
	}{
		"tenant":     {func(r *Request) { r.Tenant = "A/B" }, handoff.CodeInvalid},
		"no prompt":  {func(r *Request) { r.Prompt = nil }, handoff.CodeInvalid},
		"prompt":     {func(r *Request) { r.Prompt = make([]byte, handoff.MaxPromptTokens+1) }, handoff.CodeTooLarge},
		"no tokens":  {func(r *Request) { r.Sampling.MaxTokens = 0 }, handoff.CodeInvalid},
		"all tokens": {func(r *Request) { r.Sampling.MaxTokens = 1<<32 - 1 }, handoff.CodeTooLarge},
		"no digest":  {func(r *Request) { r.Body = handoff.Digest{} }, handoff.CodeInvalid},
		"key":        {func(r *Request) { r.Key = string(make([]byte, 257)) }, handoff.CodeInvalid},
	} {
		r := ask("k")
		c.change(&r)
		if _, err := f.gates["a"].Submit(t.Context(), r); handoff.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.clean()
}

func TestARefusalBeforeCommitLeavesTheKeyForARetry(t *testing.T) {
	f := gateways(t, "a")
	f.w.Refuse("p", handoff.StepPrefill, handoff.Errorf(handoff.CodeInvalid, "not now"))
	if _, last := read(t, f.submit("a", ask("k"))); last.Err == nil || last.Err.Code != handoff.CodeInvalid {
		t.Fatalf("%+v", last)
	}
	f.w.Refuse("p", handoff.StepPrefill, nil)
	if text, last := read(t, f.submit("a", ask("k"))); text != world.Text {
		t.Errorf("the retry got %q, %+v", text, last)
	}
	f.clean()
}

func TestARetryThatComesWhileTheRefusedRunEndsWaitsForIt(t *testing.T) {
	f := gateways(t, "a")
	run := make(chan *durableRun, 1)
	f.temporal.drive = func(r *durableRun) { // refused at once; its run goes on undoing
		a := r.in.Plan.Attempt
		f.gates["a"].Ended(t.Context(), a, handoff.CodeEngine, "broke")
		run <- r
	}
	read(t, f.submit("a", ask("k")))
	old := <-run
	f.temporal.drive = handle(f.temporal, f.gates["a"])
	second := f.submit("a", ask("k"))
	f.gates["a"].steps.ReleaseNow(t.Context(), old.in)
	out := steps.Outcome{Code: "engine"}
	if _, err := f.gates["a"].steps.Settle(t.Context(), steps.StepInput{Request: old.in, Outcome: &out}); err != nil {
		t.Fatal(err)
	}
	f.temporal.end(old, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED)
	if text, last := read(t, second); text != world.Text {
		t.Errorf("the retry got %q, %+v", text, last)
	}
	f.clean()
}

func TestTheLastClientToLeaveCancels(t *testing.T) {
	f := gateways(t, "a")
	reached, release := f.w.Hold(world.StepToken)
	defer release()
	one, two := f.submit("a", ask("k")), f.submit("a", ask("k"))
	<-reached
	one.Close()
	one.Close() // twice is once
	if s := f.gates["a"].hub.find("t", two.Handoff()); s.isOver() {
		t.Fatal("cancelled while a client reads")
	}
	two.Close()
	if !soon(func() bool { return slices.Contains(f.temporal.methods(), "cancel") }) {
		t.Error("the workflow was not told")
	}
	f.clean()
}

func (d *durable) methods() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

func TestACancelByRequestReachesEverybodyAndIsSafeToRepeat(t *testing.T) {
	f := gateways(t, "a", "b")
	reached, release := f.w.Hold(world.StepCompute)
	defer release()
	fo := f.submit("a", ask("k"))
	<-reached
	if !soon(func() bool { return f.temporal.run("t/"+fo.Handoff()) != nil }) {
		t.Fatal("nothing was started")
	}
	before, err := f.gates["a"].Cancel(t.Context(), "t", fo.Handoff())
	if err != nil || !before {
		t.Fatalf("before %v, %v", before, err)
	}
	if _, last := read(t, fo); last.Err == nil || last.Err.Code != handoff.CodeCancelled {
		t.Errorf("told %+v", last)
	}
	release()
	f.clean()
	for _, g := range []string{"a", "b"} {
		if before, err := f.gates[g].Cancel(t.Context(), "t", fo.Handoff()); err != nil || before {
			t.Errorf("a repeat at %s: %v, %v", g, before, err)
		}
	}
	if _, err := f.gates["a"].Cancel(t.Context(), "t", "nobody"); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("one that never was: %v", err)
	}
}

func TestADeadlineEndsAHandoffWithoutAToken(t *testing.T) {
	f := gateways(t)
	f.add("a", func(c *Config) { c.Deadline = 500 * time.Millisecond })
	_, release := f.w.Hold(world.StepToken)
	defer release()
	if _, last := read(t, f.submit("a", ask("k"))); last.Err == nil || last.Err.Code != handoff.CodeDeadline {
		t.Errorf("told %+v", last)
	}
	release()
	f.clean()
	f.temporal.mu.Lock()
	defer f.temporal.mu.Unlock()
	for _, r := range f.temporal.runs { // unless it ended before by itself: a deadline is not told as a client that left
		if r.why != "" && !strings.Contains(r.why, "no token within 500ms") {
			t.Errorf("history was told %q", r.why)
		}
	}
}

func TestADeadlineSparesAStreamThatHasBegun(t *testing.T) {
	f := gateways(t)
	o := f.add("a", nil)
	reached, release := f.w.Hold(world.StepToken)
	fo := f.submit("a", ask("k"))
	<-reached
	s := o.hub.find("t", fo.Handoff())
	if o.cancel(t.Context(), s, handoff.Errorf(handoff.CodeDeadline, ""), func(*stream) bool { return true }) || s.isOver() {
		t.Error("cancelled all the same")
	}
	release()
	if text, _ := read(t, fo); text != world.Text {
		t.Errorf("got %q", text)
	}
	f.clean()
}

func TestAStartThatIsRefusedEndsTyped(t *testing.T) {
	f := gateways(t, "a")
	f.temporal.down = true
	_, last := read(t, f.submit("a", ask("k")))
	if last.Err == nil || last.Err.Code != handoff.CodeUnavailable {
		t.Errorf("told %+v", last)
	}
	f.clean()
	f.temporal.down = false
	if text, last := read(t, f.submit("a", ask("k"))); text != world.Text {
		t.Errorf("the key stayed taken: %q, %+v", text, last)
	}
	f.clean()
}

func TestAStartWhoseAnswerIsLostGoesOn(t *testing.T) {
	f := gateways(t, "a")
	f.temporal.lost = true
	if text, last := read(t, f.submit("a", ask("k"))); text != world.Text {
		t.Errorf("%q, %+v", text, last)
	}
	f.clean()
}

func TestWithoutTheLedgerNothingBegins(t *testing.T) {
	f := gateways(t)
	f.add("a", func(c *Config) { c.Ledger = deafLedger{f.w.Ledger} })
	if _, err := f.gates["a"].Submit(t.Context(), ask("k")); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("told %v", err)
	}
	if slices.Contains(f.temporal.methods(), "start") {
		t.Error("a workflow was started")
	}
	f.clean()
}

// emptiedFleet is a ledger in which no engine has registered, claims kept.
type emptiedFleet struct{ ledger.Ledger }

func (emptiedFleet) Engines(context.Context) ([]ledger.Registered, error) { return nil, nil }

func TestARepeatJoinsThoughNoEngineIsLeftToPlaceItOn(t *testing.T) {
	f := gateways(t, "a")
	f.add("b", func(c *Config) { c.Ledger = emptiedFleet{f.w.Ledger} })
	reached, release := f.w.Hold(world.StepToken)
	first := f.submit("a", ask("k"))
	<-reached
	again := f.submit("b", ask("k"))
	if !again.Joined() || first.Joined() {
		t.Errorf("joined %v, %v", first.Joined(), again.Joined())
	}
	release()
	for _, fo := range []Follower{first, again} {
		if text, last := read(t, fo); text != world.Text {
			t.Errorf("got %q, %+v", text, last)
		}
	}
	if _, err := f.gates["b"].Submit(t.Context(), ask("new")); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("a new key at an empty fleet: %v", err)
	}
	if text, last := read(t, f.submit("a", ask("new"))); text != world.Text {
		t.Errorf("the refused key stayed taken: %q, %+v", text, last)
	}
	f.clean()
}

// lostLedger answers until it is away.
type lostLedger struct {
	ledger.Ledger
	away *atomic.Bool
}

func (l lostLedger) Engines(ctx context.Context) ([]ledger.Registered, error) {
	if l.away.Load() {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "redis is away")
	}
	return l.Ledger.Engines(ctx)
}

// L8: a view of the fleet does not outlive the ledger by more than its bound.
func TestALedgerThatIsAwayRefusesWithinTheSecond(t *testing.T) {
	f := gateways(t)
	var away atomic.Bool
	o := f.add("a", func(c *Config) { c.Ledger = lostLedger{f.w.Ledger, &away}; c.Refresh = time.Hour })
	if _, err := o.fleet.view(t.Context()); err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	o.fleet.refresh(t.Context())
	if _, err := o.fleet.view(t.Context()); err != nil {
		t.Errorf("one answer that did not come refused a request: %v", err)
	}
	o.fleet.mu.Lock()
	o.fleet.at = o.fleet.at.Add(-brokenAfter)
	o.fleet.mu.Unlock()
	if _, err := f.gates["a"].Submit(t.Context(), ask("")); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Errorf("told %v", err)
	}
	away.Store(false)
	o.fleet.refresh(t.Context())
	if _, err := o.fleet.view(t.Context()); err != nil {
		t.Errorf("refused although it is back: %v", err)
	}
}

type deafLedger struct{ ledger.Ledger }

func (deafLedger) Claim(_ context.Context, _ ledger.ClaimRequest) (ledger.ClaimAnswer, error) {
	return ledger.ClaimAnswer{}, handoff.Errorf(handoff.CodeUnavailable, "redis is away")
}

func TestManySubmitOneKeyAtOnce(t *testing.T) {
	f := gateways(t, "a", "b")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			fo, err := f.gates[[]string{"a", "b"}[i%2]].Submit(t.Context(), ask("k"))
			if err != nil {
				t.Error(err)
				return
			}
			if text, last := read(t, fo); text != world.Text {
				t.Errorf("%q, %+v", text, last)
			}
		})
	}
	wg.Wait()
	starts := 0
	for _, m := range f.temporal.methods() {
		if m == "start" {
			starts++
		}
	}
	if starts != 1 {
		t.Errorf("%d starts for one key", starts)
	}
	f.clean()
}

func TestAClientThatLeavesBeforeTheStartLeavesNoRun(t *testing.T) {
	f := gateways(t, "a")
	o := f.gates["a"]
	in, err := o.unplaced("id", ask(""))
	if err != nil {
		t.Fatal(err)
	}
	in, _, err = o.placed(t.Context(), in, ask(""))
	if err != nil {
		t.Fatal(err)
	}
	fo, s, _, err := o.hub.join("t", "id", handoff.Digest{1})
	if err != nil {
		t.Fatal(err)
	}
	o.adopt(s, in, in.Plan.Reader)
	fo.Close()
	if !soon(s.wasLeft) {
		t.Fatal("not cancelled")
	}
	o.start(t.Context(), s, in, ask(""), 1, func() {})
	if slices.Contains(f.temporal.methods(), "start") {
		t.Error("a run was started for nobody")
	}
	f.clean()
}

// The start has its turn once P computes, and also when P says nothing.
func TestALongPrefillGoesBeforeTheStartButCannotHoldIt(t *testing.T) {
	for name, held := range map[string]handoff.Step{"P computes": world.StepCompute, "P is silent": handoff.StepPrefill} {
		f := gateways(t, "a")
		reached, release := f.w.Hold(held)
		fo := f.submit("a", ask(""))
		<-reached
		o := f.gates["a"]
		s := o.hub.find("t", fo.Handoff())
		if s == nil {
			t.Fatalf("%s: no stream", name)
		}
		o.headStart(s.input(), time.Hour)() // of the same attempt, again: it joins
		release()
		if text, last := read(t, fo); text != world.Text {
			t.Errorf("%s: %q, %+v", name, text, last)
		}
		f.clean()
	}
}
