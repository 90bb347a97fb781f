package vllm_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, e *vllmtest.Engine, style vllm.Style) *vllm.Server {
	t.Helper()
	s, err := vllm.Open(vllm.Config{URL: e.URL(), Style: style, Bootstrap: e.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func request(t *testing.T, body string) vllm.Request {
	t.Helper()
	r, err := vllm.ParseRequest(vllm.PathCompletions, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func prefill(t *testing.T, s *vllm.Server, r vllm.Request) vllm.Prefilled {
	t.Helper()
	p, transfer, err := s.Prefill(t.Context(), r, "t1", http.Header{"X-Request-Id": {"a1"}})
	if err != nil || transfer != nil {
		t.Fatal(err, transfer)
	}
	return p
}

func all(t *testing.T, a *vllm.Answer) (text string, tokens uint32, finish string, err error) {
	t.Helper()
	for {
		p, err := a.Next()
		if errors.Is(err, io.EOF) {
			return text, tokens, finish, nil
		}
		if err != nil {
			return text, tokens, finish, err
		}
		text += string(p.Bytes)
		tokens += p.Tokens
		finish = p.Finish
	}
}

func TestAPairHandsOverAndTheAnswerIsPassedAsItIs(t *testing.T) {
	for _, style := range []vllm.Style{vllm.NIXLPull, vllm.NIXLPush, vllm.Mooncake} {
		n := vllmtest.NewNetwork()
		p := n.Start(t, vllmtest.Options{Push: style == vllm.NIXLPush, Mooncake: style == vllm.Mooncake})
		d := n.Start(t, vllmtest.Options{})
		r := request(t, `{"model":"fake","prompt":"abc","max_tokens":4,"stream":true, "guided_json" : {"a":  [1.0]},"min_tokens":3,"cache_salt":"the client's"}`)
		got := prefill(t, open(t, p, style), r)
		if p.Held() != 1 || got.PromptTokens == 0 || string(got.IDs) != "[11,12,13]" {
			t.Fatalf("%s: %d held, %+v", style, p.Held(), got)
		}
		a, err := open(t, d, style).Decode(t.Context(), r, got, "salt-a1", http.Header{"X-Request-Id": {"a1"}, "Idempotency-Key": {"k"}})
		if err != nil {
			t.Fatal(err)
		}
		text, tokens, finish, err := all(t, a)
		a.Close()
		if err != nil || tokens != 4 || finish != "length" || !strings.HasSuffix(text, "data: [DONE]\n\n") || !strings.Contains(text, `"text":" w3"`) {
			t.Errorf("%s: %q, %d, %q, %v", style, text, tokens, finish, err)
		}
		if p.Held() != 0 {
			t.Errorf("%s: P still holds", style)
		}
		sent := string(d.Seen().Bodies[0])
		for _, want := range []string{`"guided_json" : {"a":  [1.0]}`, `"prompt":[11,12,13]`, `"min_tokens":3`, `"max_tokens":4`, `"cache_salt":"salt-a1"`} {
			if !strings.Contains(sent, want) {
				t.Errorf("%s: D was sent %s, want %s", style, sent, want)
			}
		}
		if ids := append(p.Seen().RequestIDs, d.Seen().RequestIDs...); len(ids) != 2 || ids[0] != "a1" || ids[1] != "a1" {
			t.Errorf("%s: request ids %v", style, ids)
		}
	}
}

func TestAPrefillWithoutTransferParametersIsTyped(t *testing.T) {
	n := vllmtest.NewNetwork()
	p := n.Start(t, vllmtest.Options{})
	p.Set(func(f *vllmtest.Faults) { f.NoParams = true })
	_, transfer, err := open(t, p, vllm.NIXLPull).Prefill(t.Context(), request(t, `{"model":"fake","prompt":"a"}`), "t", nil)
	if err != nil || handoff.CodeOf(transfer) != handoff.CodeMismatch {
		t.Error(err, transfer)
	}
	pull := n.Start(t, vllmtest.Options{})
	_, transfer, err = open(t, pull, vllm.NIXLPush).Prefill(t.Context(), request(t, `{"model":"fake","prompt":"a"}`), "t", nil)
	if err != nil || handoff.CodeOf(transfer) != handoff.CodeMismatch {
		t.Error("a pull engine in a push pair:", err, transfer)
	}
}

// What D finds wrong with a request before its engine has it keeps P's blocks: P is told
// by a request with nothing wrong but its length.
func TestWhatDRefusesEarlyDoesNotKeepPFromBeingTold(t *testing.T) {
	n := vllmtest.NewNetwork()
	p, d := n.Start(t, vllmtest.Options{}), n.Start(t, vllmtest.Options{})
	d.Set(func(f *vllmtest.Faults) { f.MaxLogprobs = 2 })
	r := request(t, `{"model":"fake","prompt":"a","max_tokens":2,"logprobs":5}`)
	got := prefill(t, open(t, p, vllm.NIXLPull), r)
	s := open(t, d, vllm.NIXLPull)
	met(t, s, p)
	if _, err := s.Decode(t.Context(), r, got, "s", nil); handoff.CodeOf(err) != handoff.CodeInvalid || p.Held() == 0 {
		t.Fatal(err, p.Held())
	}
	if err := s.Reject(t.Context(), r, got, "s", nil); err != nil || p.Held() != 0 {
		t.Error(err, p.Held())
	}
}

// met has a D fetch from a P once.
func met(t *testing.T, d *vllm.Server, p *vllmtest.Engine) {
	t.Helper()
	r, held := request(t, `{"model":"fake","prompt":"hello"}`), p.Held()
	if err := d.FetchAndDrop(t.Context(), r, prefill(t, open(t, p, vllm.NIXLPull), r), "m", nil); err != nil || p.Held() != held {
		t.Fatal(err, p.Held())
	}
}

// A rejection is told with D's next step where D has not fetched from that P before.
func TestADThatNeverFetchedFromPIsMadeTo(t *testing.T) {
	n := vllmtest.NewNetwork()
	p, d := n.Start(t, vllmtest.Options{}), n.Start(t, vllmtest.Options{})
	d.Set(func(f *vllmtest.Faults) { f.MaxLogprobs = 2 })
	r := request(t, `{"model":"fake","prompt":"secret words","max_tokens":300,"max_completion_tokens":300,"logprobs":5,"stream":true}`)
	got := prefill(t, open(t, p, vllm.NIXLPull), r)
	s := open(t, d, vllm.NIXLPull)
	if err := s.Reject(t.Context(), r, got, "s", nil); err != nil || p.Held() != 1 {
		t.Fatalf("%v, %d held: the imitation is better than vLLM", err, p.Held())
	}
	if err := s.FetchAndDrop(t.Context(), r, got, "s", nil); err != nil || p.Held() != 0 {
		t.Fatal(err, p.Held())
	}
	bodies := d.Seen().Bodies
	last := string(bodies[len(bodies)-1])
	if !strings.Contains(last, `"max_tokens":1`) || !strings.Contains(last, `"stream":false`) || strings.Contains(last, "logprobs") || strings.Contains(last, "300") {
		t.Error(last)
	}
	d.Kill()
	if err := s.FetchAndDrop(t.Context(), r, got, "s", nil); handoff.CodeOf(err) != handoff.CodeUnavailable || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestARefusedRequestReleasesP(t *testing.T) {
	n := vllmtest.NewNetwork()
	p, d := n.Start(t, vllmtest.Options{}), n.Start(t, vllmtest.Options{})
	r := request(t, `{"model":"fake","prompt":"a","max_tokens":2,"max_completion_tokens":2}`)
	got := prefill(t, open(t, p, vllm.NIXLPull), r)
	s := open(t, d, vllm.NIXLPull)
	met(t, s, p)
	before := d.Seen()
	for range 2 { // safe to repeat
		if err := s.Reject(t.Context(), r, got, "s", nil); err != nil {
			t.Fatal(err)
		}
	}
	if p.Held() != 0 || d.Seen().Rejected != before.Rejected+2 || d.Seen().Decodes != before.Decodes {
		t.Errorf("%d held, %+v", p.Held(), d.Seen())
	}
	d.Kill()
	if err := s.Reject(t.Context(), r, got, "s", nil); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Error(err)
	}
}

func TestAPrefillThatIsLeftPinsNothing(t *testing.T) {
	n := vllmtest.NewNetwork()
	p := n.Start(t, vllmtest.Options{})
	gate := make(chan struct{})
	p.Set(func(f *vllmtest.Faults) { f.PrefillGate = gate })
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	s := open(t, p, vllm.NIXLPull)
	r := request(t, `{"model":"fake","prompt":"a"}`)
	go func() {
		_, _, err := s.Prefill(ctx, r, "t", nil)
		ended <- err
	}()
	eventually(t, func() bool { return p.Seen().Prefills == 1 })
	cancel(handoff.Errorf(handoff.CodeCancelled, "the client left"))
	if err := <-ended; handoff.CodeOf(err) != handoff.CodeCancelled {
		t.Error(err)
	}
	eventually(t, func() bool { return p.Seen().Aborted == 1 })
	if p.Held() != 0 {
		t.Error("P holds an aborted prefill")
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("did not come true in time")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestAnEndThatDDidNotSayIsNotAnEnd(t *testing.T) {
	n := vllmtest.NewNetwork()
	d := n.Start(t, vllmtest.Options{})
	s := open(t, d, vllm.NIXLPull)
	r := request(t, `{"model":"fake","prompt":"a","max_tokens":5,"stream":true}`)
	d.Set(func(f *vllmtest.Faults) { f.Truncate = 3 })
	a, err := s.Decode(t.Context(), r, vllm.Prefilled{}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, tokens, finish, err := all(t, a)
	a.Close()
	if handoff.CodeOf(err) != handoff.CodeEngine || tokens != 3 || finish != "" {
		t.Error(tokens, finish, err)
	}
	d.Set(func(f *vllmtest.Faults) { *f = vllmtest.Faults{ErrorEvent: true} })
	if a, err = s.Decode(t.Context(), r, vllm.Prefilled{}, "", nil); err != nil {
		t.Fatal(err)
	}
	text, _, _, err := all(t, a)
	a.Close()
	if handoff.CodeOf(err) != handoff.CodeEngine || text != "" || strings.Contains(err.Error(), "prompt text") {
		t.Errorf("%q %v", text, err)
	}
}

func TestStatusesAreTypedAndTheirWordsStayApart(t *testing.T) {
	n := vllmtest.NewNetwork()
	d := n.Start(t, vllmtest.Options{})
	s := open(t, d, vllm.NIXLPull)
	r := request(t, `{"model":"fake","prompt":"a"}`)
	for status, want := range map[int]handoff.Code{400: handoff.CodeInvalid, 401: handoff.CodeDenied, 404: handoff.CodeMismatch,
		429: handoff.CodeCapacity, 500: handoff.CodeEngine, 503: handoff.CodeCapacity} {
		d.Set(func(f *vllmtest.Faults) { f.DecodeStatus = status })
		_, err := s.Decode(t.Context(), r, vllm.Prefilled{}, "", nil)
		var f *vllm.Failure
		if handoff.CodeOf(err) != want || !errors.As(err, &f) || f.Status != status || len(f.Body) == 0 || strings.Contains(err.Error(), "injected") {
			t.Errorf("%d: %v", status, err)
		}
	}
	d.Kill()
	_, err := s.Decode(t.Context(), r, vllm.Prefilled{}, "", nil)
	var f *vllm.Failure
	if handoff.CodeOf(err) != handoff.CodeEngine || !errors.As(err, &f) || !f.Down {
		t.Error(err)
	}
}

func TestMetricsAndFactsAreRead(t *testing.T) {
	n := vllmtest.NewNetwork()
	p := n.Start(t, vllmtest.Options{Blocks: 100, BlockTokens: 16, Context: 512})
	s := open(t, p, vllm.NIXLPull)
	p.Rise()
	got, err := s.Scrape(t.Context(), vllm.SideP)
	if err != nil || got.Blocks != 100 || got.BlockTokens != 16 {
		t.Fatal(got, err)
	}
	if v, ok := got.Value(vllm.MetricExpired); !ok || v != 1 {
		t.Error(v, ok)
	}
	if _, ok := got.Value(vllm.MetricFailed); ok {
		t.Error("a metric that is missing was read as zero")
	}
	f, err := s.Facts(t.Context(), vllm.SideP)
	if err != nil || f.Model != "fake" || f.Revision() != "fake@r1 vllm/0.32.0" || f.Context != 512 {
		t.Error(f, err)
	}
	if err := s.Health(t.Context(), vllm.SideP); err != nil {
		t.Error(err)
	}
	p.Set(func(f *vllmtest.Faults) { f.MetricsStatus = 500 })
	if _, err := s.Scrape(t.Context(), vllm.SideP); handoff.CodeOf(err) != handoff.CodeEngine {
		t.Error(err)
	}
}

func TestPlaintextStaysOnLoopbackUnlessAllowed(t *testing.T) {
	if _, err := vllm.Open(vllm.Config{URL: "http://10.0.0.1:8000", Style: vllm.NIXLPull}); handoff.CodeOf(err) != handoff.CodeDenied {
		t.Error(err)
	}
	for _, c := range []vllm.Config{{URL: "https://10.0.0.1:8000"}, {URL: "http://10.0.0.1:8000", Plaintext: true}, {URL: "http://[::1]:8000"}} {
		c.Style = vllm.NIXLPull
		s, err := vllm.Open(c)
		if err != nil {
			t.Error(err)
			continue
		}
		s.Close()
	}
}
