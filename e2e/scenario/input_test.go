package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/traffic"
)

// Whatever is wrong with a request, the client gets a typed error, and no P
// computes and no D reserves for it.
func TestBadInputIsRefusedBeforeAnyPrefill(t *testing.T) {
	s := shared(t)
	const text, chat, kind = "/v1/completions", "/v1/chat/completions", "application/json"
	m := s.Options.ModelName()
	with := func(fields string) string { return fmt.Sprintf(`{"model":%q,"prompt":"p",%s}`, m, fields) }
	header := func(name, value string) map[string]string { return map[string]string{name: value} }
	plain := with(`"max_tokens":2`)
	for _, c := range []struct {
		name, path, kind, body string
		headers                map[string]string
		status                 int
	}{
		{"no JSON", text, kind, "{", nil, 400},
		{"not an object", text, kind, "[]", nil, 400},
		{"two objects", text, kind, plain + plain, nil, 400},
		{"not UTF-8", text, kind, "{\"model\":\"\xff\"}", nil, 400},
		{"nothing", text, kind, "", nil, 400},
		{"another content type", text, "text/plain", plain, nil, 415},
		{"no model", text, kind, `{"prompt":"p"}`, nil, 400},
		{"a model that nobody serves", text, kind, `{"model":"nobody","prompt":"p"}`, nil, 404},
		{"no prompt", text, kind, fmt.Sprintf(`{"model":%q}`, m), nil, 400},
		{"an empty prompt", text, kind, fmt.Sprintf(`{"model":%q,"prompt":""}`, m), nil, 400},
		{"two prompts", text, kind, fmt.Sprintf(`{"model":%q,"prompt":["a","b"]}`, m), nil, 400},
		{"token ids", text, kind, fmt.Sprintf(`{"model":%q,"prompt":[1,2]}`, m), nil, 400},
		{"no tokens", text, kind, with(`"max_tokens":0`), nil, 400},
		{"less than no tokens", text, kind, with(`"max_tokens":-1`), nil, 400},
		{"more tokens than the context", text, kind, with(`"max_tokens":4000000`), nil, 400},
		{"a cold temperature", text, kind, with(`"temperature":-1`), nil, 400},
		{"a hot temperature", text, kind, with(`"temperature":99`), nil, 400},
		{"no nucleus", text, kind, with(`"top_p":0`), nil, 400},
		{"a seed that is no number", text, kind, with(`"seed":"x"`), nil, 400},
		{"an empty stop", text, kind, with(`"stop":""`), nil, 400},
		{"too many stops", text, kind, with(`"stop":["a","b","c","d","e"]`), nil, 400},
		{"an unknown field", text, kind, with(`"max_token":2`), nil, 400},
		{"several answers", text, kind, with(`"n":2`), nil, 400},
		{"tools", chat, kind, fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"c"}],"tools":[{}]}`, m), nil, 400},
		{"no messages", chat, kind, fmt.Sprintf(`{"model":%q,"messages":[]}`, m), nil, 400},
		{"a role that is none", chat, kind, fmt.Sprintf(`{"model":%q,"messages":[{"role":"boss","content":"c"}]}`, m), nil, 400},
		{"a picture", chat, kind, fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, m), nil, 400},
		{"a prompt too long for the context", text, kind, fmt.Sprintf(`{"model":%q,"prompt":%q}`, m, strings.Repeat("a", 200<<10)), nil, 400},
		{"a body too large", text, kind, fmt.Sprintf(`{"model":%q,"prompt":%q}`, m, strings.Repeat("a", 5<<20)), nil, 413},
		{"a tenant with a slash", text, kind, plain, header("X-Surehand-Tenant", "a/b"), 400},
		{"a key of 300 bytes", text, kind, plain, header("Idempotency-Key", strings.Repeat("k", 300)), 400},
		{"no deadline left", text, kind, plain, header("X-Surehand-Deadline-Ms", "0"), 400},
		{"a P that nobody knows", text, kind, plain, header("X-Surehand-Prefill", "nobody"), 0},
		{"a D that nobody knows", text, kind, plain, header("X-Surehand-Decode", "nobody"), 0},
		{"a D as P", text, kind, plain, header("X-Surehand-Prefill", "d1"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.Mark()
			a := s.g1().Post(within(t, requestWithin), c.path, c.kind, []byte(c.body), c.headers)
			refused(t, a, c.status)
			if events := s.Since(before); len(events) > 0 {
				t.Errorf("the daemons heard of it: %v", events)
			}
		})
	}
}

func refused(t *testing.T, a traffic.Answer, status int) {
	t.Helper()
	if a.Failure == nil || a.Broken != nil || a.Failure.Code == "" || a.Failure.Message == "" {
		t.Fatalf("no typed refusal: status %d, %+v, %v", a.Status, a.Failure, a.Broken)
	}
	if status != 0 && a.Status != status || a.Status < 400 {
		t.Errorf("status %d (%s: %s), want %d", a.Status, a.Failure.Code, a.Failure.Message, status)
	}
}

// More than D has room for is refused by D's account, before any prefill.
func TestARequestWithoutRoomIsRefusedBeforeAnyPrefill(t *testing.T) {
	s := shared(t)
	ask := s.ask(shortPrompt, 16*4096) // more than all blocks of d1
	before := s.Mark()
	a := s.g1().Send(within(t, requestWithin), ask)
	if err := a.Typed(); err != nil || a.Failure == nil {
		t.Fatalf("%s: %v", chaos.Verdict(a), err)
	}
	if p := fault.Committed(s.Since(before)); len(p) > 0 {
		t.Errorf("committed: %v", p)
	}
	t.Logf("%d %s: %s", a.Status, a.Failure.Code, a.Failure.Message)
}
