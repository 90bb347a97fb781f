package vllmengine

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

func TestDsRequestGoesFirstAndItsAnswerComesAfterTheCommit(t *testing.T) {
	r := newRig(t, nil)
	q := r.reserve()
	if want := sha256.Sum256([]byte("t")); string(q.plan.GetTenant()) != string(want[:]) {
		t.Errorf("vLLM was asked for tenant %x", q.plan.GetTenant())
	}
	if q.plan.GetRole() != enginev1.Role_ROLE_DECODE || q.plan.GetLeaseMs() != 1000 || q.CacheSalt != "t" || string(q.Prompt) != "[1,2,3]" || !q.Stream {
		t.Errorf("vLLM was asked %+v under %v", q.completion, q.plan)
	}
	if again, err := r.engine.Reserve(t.Context(), reservation); err != nil || again.Token != token {
		t.Errorf("a repeat: %v, %v", again, err)
	}
	r.committed()
	q.send <- `{"choices":[{"text":"a","token_ids":[1]}]}`
	q.send <- `{"choices":[{"text":" b","token_ids":[]}]}`
	q.send <- `{"choices":[{"text":"c","token_ids":[2,3],"finish_reason":"length"}]}`
	close(q.send)
	text, last, err := r.attach()
	if err != nil || text != "a bc" || last.Finish != engine.FinishLength || last.Position != 1 ||
		last.Counts != (engine.Counts{Direct: 172, Cached: 128, Completion: 3}) {
		t.Errorf("%q %+v %v", text, last, err)
	}
	r.freed(false)
	r.holdsNothing()
	if text, _, err := r.attach(); err != nil || text != "a bc" {
		t.Errorf("a late reader: %q, %v", text, err)
	}
	_, err = r.engine.Reserve(t.Context(), reservation)
	wantCode(t, err, handoff.CodeAborted)
	if len(r.requests) > 0 {
		t.Error("vLLM was asked twice")
	}
}

func TestAPromptThatTheEngineComputesAgainIsCountedAsSuch(t *testing.T) {
	r := newRig(t, nil)
	q := r.reserve()
	r.committed()
	q.send <- `{"choices":[{"text":"a","token_ids":[1]}]}`
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Recomputed{Recomputed: &enginev1.ConnectorRecomputed{Attempt: rpc.Attempt(plan.Attempt), Tokens: 300}}})
	r.eventually("the front knows", func() bool { return r.front.attempts.findTarget(plan.Attempt).recomputed.Load() > 0 })
	q.send <- `{"choices":[{"text":"b","token_ids":[2],"finish_reason":"length"}]}`
	close(q.send)
	if _, last, err := r.attach(); err != nil || last.Counts != (engine.Counts{Recomputed: 300, Completion: 2}) {
		t.Errorf("%+v %v", last, err)
	}
	r.freed(false)
	r.holdsNothing()
}

func TestWhatWasNotCommittedIsNoAnswer(t *testing.T) {
	r := newRig(t, nil)
	q := r.reserve()
	q.send <- `{"choices":[{"text":"stale","token_ids":[1]}]}`
	text, _, err := r.attach()
	wantCode(t, err, handoff.CodeInternal)
	if text != "" {
		t.Errorf("%q", text)
	}
	r.gone(q)
	r.freed(false)
}

func TestATargetThatIsClosedEndsWithItsCause(t *testing.T) {
	r := newRig(t, nil)
	q := r.reserve()
	r.over(false, handoff.CodeLease.String())
	_, _, err := r.attach()
	wantCode(t, err, handoff.CodeLease)
	r.gone(q)
	r.freed(false)
	r.holdsNothing()
}

func TestAnEndAfterTheCommitIsAborted(t *testing.T) {
	r := newRig(t, nil)
	q := r.reserve()
	r.committed()
	q.send <- `{"choices":[{"text":"a","token_ids":[1]}]}`
	r.over(false, handoff.CodeLease.String())
	_, _, err := r.attach()
	wantCode(t, err, handoff.CodeAborted)
	r.gone(q)
	r.freed(false)
}

func TestAReservationThatGetsNoBlocksIsRefusedForWantOfRoom(t *testing.T) {
	r := newRig(t, func(c *Config) { c.QueueWait = 20 * time.Millisecond })
	_, err := r.engine.Reserve(t.Context(), reservation)
	wantCode(t, err, handoff.CodeCapacity)
	r.gone(<-r.requests)
	r.holdsNothing()
}

func TestARefusedTargetKeepsItsCode(t *testing.T) {
	r := newRig(t, nil)
	go func() {
		<-r.requests
		r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Target{Target: &enginev1.ConnectorTarget{
			Attempt: rpc.Attempt(plan.Attempt), Failure: rpc.Failure(handoff.Errorf(handoff.CodeMismatch, "another layout"))}}})
	}()
	_, err := r.engine.Reserve(t.Context(), reservation)
	wantCode(t, err, handoff.CodeMismatch)
	r.holdsNothing()
}

func TestVLLMsEndOfARequestIsTyped(t *testing.T) {
	for event, code := range map[string]handoff.Code{
		`{"error":{"message":"kv load failed"}}`:                           handoff.CodeEngine,
		`{"choices":[{"text":"","token_ids":[],"finish_reason":"abort"}]}`: handoff.CodeEngine,
		`no json`: handoff.CodeEngine,
		``:        handoff.CodeEngine, // nothing: it just ends
	} {
		r := newRig(t, nil)
		q := r.reserve()
		r.committed()
		if event != "" {
			q.send <- event
		} else {
			close(q.send)
		}
		_, _, err := r.attach()
		wantCode(t, err, code)
		r.freed(false)
		r.holdsNothing()
	}
}

var prefill = engine.Prefill{Plan: plan, Prompt: []byte("[1,2,3]"), Sampling: engine.Sampling{MaxTokens: 4}, Lease: time.Second}

// seal has P's prompt computed and its source sealed.
func (r *rig) seal() (opened engine.Opened) {
	r.t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := r.engine.Prefill(r.t.Context(), prefill, func(o engine.Opened) { opened = o }, nil)
		done <- err
	}()
	q := <-r.requests
	if q.MaxTokens != 1 || q.plan.GetRole() != enginev1.Role_ROLE_PREFILL || q.CacheSalt != string(plan.Attempt.Handoff) {
		r.t.Errorf("vLLM was asked %+v", q.completion)
	}
	r.sealed()
	close(q.send)
	if err := <-done; err != nil {
		r.t.Fatal(err)
	}
	return opened
}

func TestAPrefillIsToldOnceSealedAndAgainAfterItWasRead(t *testing.T) {
	r := newRig(t, nil)
	if o := r.seal(); string(o.Capability) != "cap" || o.SourceAddress != "127.0.0.1:2" || o.PromptTokens != 300 {
		t.Errorf("%+v", o)
	}
	r.over(true, "")
	r.freed(true)
	r.holdsNothing()
	s, err := r.engine.Prefill(t.Context(), prefill, nil, nil)
	if err != nil || s.PromptTokens != 300 || s.CachedTokens != 128 || len(r.requests) > 0 {
		t.Errorf("%+v, %v, vLLM was asked again: %v", s, err, len(r.requests) > 0)
	}
}

func TestAPrefillThatMayBeReadIsToldBeforeItIsSealed(t *testing.T) {
	r := newRig(t, nil)
	opened, sealed := make(chan engine.Opened, 2), make(chan error, 1)
	go func() {
		_, err := r.engine.Prefill(t.Context(), prefill, func(o engine.Opened) { opened <- o }, nil)
		sealed <- err
	}()
	q := <-r.requests
	r.readable()
	if o := <-opened; string(o.Capability) != "cap" || o.SourceAddress != "127.0.0.1:2" || o.PromptTokens != 300 {
		t.Errorf("%+v", o)
	}
	if len(sealed) > 0 {
		t.Error("sealed before vLLM has computed it")
	}
	r.sealed()
	close(q.send)
	if err := <-sealed; err != nil || len(opened) > 0 {
		t.Errorf("%v, told %d times more", err, len(opened))
	}
	r.over(true, "")
	r.freed(true)
	r.holdsNothing()
}

func TestAPrefillThatFailsAfterItMayBeReadEndsTyped(t *testing.T) {
	r := newRig(t, nil)
	opened, ended := make(chan engine.Opened, 1), make(chan error, 1)
	go func() {
		_, err := r.engine.Prefill(t.Context(), prefill, func(o engine.Opened) { opened <- o }, nil)
		ended <- err
	}()
	<-r.requests
	r.readable()
	<-opened
	r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Source{Source: &enginev1.ConnectorSource{
		Attempt: rpc.Attempt(plan.Attempt), Failure: rpc.Failure(handoff.Errorf(handoff.CodeEngine, "preempted"))}}})
	wantCode(t, <-ended, handoff.CodeEngine)
	r.holdsNothing()
}

func TestACancelledSourceIsDroppedAndStaysOver(t *testing.T) {
	r := newRig(t, nil)
	r.seal()
	if known, err := r.engine.Cancel(t.Context(), plan); err != nil || !known {
		t.Fatal(known, err)
	}
	r.eventually("the connector is told to drop it", func() bool {
		select {
		case m := <-r.orders:
			return m.GetDrop() != nil
		default:
			return false
		}
	})
	r.freed(true)
	r.holdsNothing()
	_, err := r.engine.Prefill(t.Context(), prefill, nil, nil)
	wantCode(t, err, handoff.CodeCancelled)
}

func TestWhatIsCancelledBeforeItCameIsRefused(t *testing.T) {
	r := newRig(t, nil)
	if known, err := r.engine.Cancel(t.Context(), plan); err != nil || known {
		t.Fatal(known, err)
	}
	_, err := r.engine.Reserve(t.Context(), reservation)
	wantCode(t, err, handoff.CodeCancelled)
	_, err = r.engine.Prefill(t.Context(), prefill, nil, nil)
	wantCode(t, err, handoff.CodeCancelled)
}

func TestAPrefillThatTheConnectorDoesNotKnowIsNoPrefill(t *testing.T) {
	r := newRig(t, nil)
	go func() { close((<-r.requests).send) }()
	_, err := r.engine.Prefill(t.Context(), prefill, nil, nil)
	wantCode(t, err, handoff.CodeEngine)
	r.holdsNothing()
}

func TestTheEnginesDeathEndsEverything(t *testing.T) {
	r := newRig(t, nil)
	q := r.reserve()
	if err := r.connector.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.attach()
	wantCode(t, err, handoff.CodeEngine)
	r.gone(q)
	r.holdsNothing()
	if r.front.Attached() {
		t.Error("still attached")
	}
	other := reservation
	other.Plan.Attempt.Handoff = "other"
	_, err = r.engine.Reserve(t.Context(), other)
	wantCode(t, err, handoff.CodeEngine)
}

// What the connector stands beside, and that it left, is told when it changes.
func TestAnotherLifeOfTheTransferdIsToldAtOnce(t *testing.T) {
	r := newRig(t, nil)
	await := func(attached bool, life uint64) {
		t.Helper()
		for r.front.Attached() != attached || r.front.Description().GetNodeIncarnation() != life {
			select {
			case <-r.front.Changes():
			case <-time.After(soon):
				t.Fatalf("no word of life %d, attached %t", life, attached)
			}
		}
	}
	await(true, 3)
	for _, b := range []*enginev1.ConnectorBeside{{Node: "te", Incarnation: 3}, {Attached: true, Node: "te", Incarnation: 4}} {
		r.say(&enginev1.ConnectorMessage{Body: &enginev1.ConnectorMessage_Beside{Beside: b}})
		await(b.GetAttached(), b.GetIncarnation())
	}
	if err := r.connector.Close(); err != nil {
		t.Fatal(err)
	}
	await(false, 4)
}

func TestPlansOfAnotherLifeOrModelAreRefused(t *testing.T) {
	r := newRig(t, nil)
	for code, change := range map[handoff.Code]func(*engine.Reservation){
		handoff.CodeStaleIncarnation: func(q *engine.Reservation) { q.Plan.D.Incarnation++ },
		handoff.CodeMismatch:         func(q *engine.Reservation) { q.Revision = "another" },
		handoff.CodeInvalid:          func(q *engine.Reservation) { q.Prompt = []byte("text") },
		handoff.CodeTooLarge:         func(q *engine.Reservation) { q.Sampling.Stop = make([]string, maxStops+1) },
	} {
		q := reservation
		change(&q)
		_, err := r.engine.Reserve(t.Context(), q)
		wantCode(t, err, code)
	}
	r.reserve()
	q := reservation
	q.Plan.BodyDigest = handoff.Digest{2}
	_, err := r.engine.Reserve(t.Context(), q)
	wantCode(t, err, handoff.CodeConflict)
	r.over(false, "")
	r.freed(false)
}

// What a layout stands for goes on to the registry, so that a pair that does not fit
// is refused with the field in which it differs.
func TestALayoutIsToldWithWhatItStandsFor(t *testing.T) {
	r := newRig(t, nil)
	d := r.front.Description()
	got, err := rpc.DecodeLayout(d.GetDescribed())
	if is := got.Layout.Fingerprint(); err != nil || string(d.GetLayout()) != string(is[:]) {
		t.Errorf("%+v, %v", got, err)
	}
	c := newConnector(nil, slog.New(slog.DiscardHandler))
	for name, change := range map[string]func(*enginev1.ConnectorHello){
		"another layout": func(h *enginev1.ConnectorHello) { h.Layout[0]++ },
		"no layout":      func(h *enginev1.ConnectorHello) { h.Described = []byte{0xff} },
		"no fingerprint": func(h *enginev1.ConnectorHello) { h.Layout = h.Layout[:31] },
	} {
		h := hello()
		change(h)
		if err := c.greet(nil, h); handoff.CodeOf(err) != handoff.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	undescribed := hello()
	undescribed.Described = nil // as a connector of an earlier release says it
	if err := c.greet(nil, undescribed); err != nil {
		t.Error(err)
	}
}

// A tenant is told to transferd as a digest of its salt, and never the salt.
func TestATenantIsToldWithoutItsSalt(t *testing.T) {
	r := newRig(t, nil)
	r.reserve()
	q := reservation
	q.Plan.Attempt.Handoff, q.TenantSalt = "of-nobody", ""
	go func() { _, _ = r.engine.Reserve(t.Context(), q) }() // it ends with the test
	of := <-r.requests
	if len(of.plan.GetTenant()) != 0 || of.CacheSalt != "of-nobody" {
		t.Errorf("without a salt: tenant %x, cache salt %q", of.plan.GetTenant(), of.CacheSalt)
	}
}

func TestAPromptIsTheTokensThatVLLMMakesOfIt(t *testing.T) {
	r := newRig(t, nil)
	tokenizer, ok := r.engine.(engine.Tokenizer)
	if !ok || !r.front.Description().GetTokenizes() {
		t.Fatal("it does not say that it tokenizes")
	}
	for want, text := range map[string]engine.Text{
		"[0,0,0,0]": {Prompt: []byte("four")},
		"[0,0]":     {Messages: []engine.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}},
	} {
		got, err := tokenizer.Tokenize(t.Context(), text)
		if err != nil || string(got.Prompt) != want || int(got.Tokens) != len(want)/2 {
			t.Errorf("%q of %d, %v; want %q", got.Prompt, got.Tokens, err, want)
		}
	}
	_, err := tokenizer.Tokenize(t.Context(), engine.Text{Prompt: []byte{0xff}})
	wantCode(t, err, handoff.CodeInvalid)
}

func TestPlaintextNeverLeavesThisHost(t *testing.T) {
	good := Config{ID: "e", Role: engine.RoleDecode, Listen: "127.0.0.1:0", URL: "http://127.0.0.1:1"}
	for _, change := range []func(*Config){
		func(c *Config) { c.Listen = "0.0.0.0:0" }, func(c *Config) { c.URL = "http://10.0.0.1:8000" }, func(c *Config) { c.URL = "http://vllm.example" },
	} {
		c := good
		change(&c)
		wantCode(t, c.check(), handoff.CodeDenied)
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}

func TestAFrontWaitsForItsConnector(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := New(ctx, Config{ID: "e", Role: engine.RoleDecode, Listen: "127.0.0.1:0", URL: "http://127.0.0.1:1", Socket: t.TempDir() + "/s"})
	wantCode(t, err, handoff.CodeUnavailable)
}
