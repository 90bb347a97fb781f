package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workers/orchestrator"
)

// Every row is refused before anything is submitted, with the field named.
func TestBadInputIsRefusedByName(t *testing.T) {
	text := func(extra string) string { return `{"model":"tiny","prompt":"Hi",` + extra + `}` }
	chat := func(messages string) string { return `{"model":"tiny","messages":` + messages + `}` }
	for name, c := range map[string]struct {
		path, body string
		status     int
		param      string
		code       string
	}{
		"not JSON":            {"completions", `{`, 400, "", "invalid"},
		"an array":            {"completions", `[]`, 400, "", "invalid"},
		"null":                {"completions", `null`, 400, "", "invalid"},
		"two objects":         {"completions", `{} {}`, 400, "", "invalid"},
		"not UTF-8":           {"completions", "{\"model\":\"\xff\"}", 400, "", "invalid"},
		"no model":            {"completions", `{"prompt":"Hi"}`, 400, "model", "invalid"},
		"no such model":       {"completions", `{"model":"huge","prompt":"Hi"}`, 404, "model", "model_not_found"},
		"model no string":     {"completions", `{"model":1,"prompt":"Hi"}`, 400, "model", "invalid"},
		"no prompt":           {"completions", `{"model":"tiny"}`, 400, "prompt", "invalid"},
		"token ids":           {"completions", `{"model":"tiny","prompt":[1,2]}`, 400, "prompt", "invalid"},
		"two prompts":         {"completions", `{"model":"tiny","prompt":["a","b"]}`, 400, "prompt", "invalid"},
		"messages in text":    {"completions", text(`"messages":[]`), 400, "messages", "invalid"},
		"unknown field":       {"completions", text(`"top_k":5`), 400, "top_k", "invalid"},
		"n":                   {"completions", text(`"n":2`), 400, "n", "invalid"},
		"best_of":             {"completions", text(`"best_of":3`), 400, "best_of", "invalid"},
		"echo":                {"completions", text(`"echo":true`), 400, "echo", "invalid"},
		"suffix":              {"completions", text(`"suffix":"x"`), 400, "suffix", "invalid"},
		"logprobs":            {"completions", text(`"logprobs":1`), 400, "logprobs", "invalid"},
		"logit_bias":          {"completions", text(`"logit_bias":{"1":5}`), 400, "logit_bias", "invalid"},
		"presence_penalty":    {"completions", text(`"presence_penalty":1`), 400, "presence_penalty", "invalid"},
		"frequency_penalty":   {"completions", text(`"frequency_penalty":0.1`), 400, "frequency_penalty", "invalid"},
		"max_tokens 0":        {"completions", text(`"max_tokens":0`), 400, "max_tokens", "invalid"},
		"max_tokens negative": {"completions", text(`"max_tokens":-1`), 400, "max_tokens", "invalid"},
		"max_tokens fraction": {"completions", text(`"max_tokens":1.5`), 400, "max_tokens", "invalid"},
		"max_tokens huge":     {"completions", text(`"max_tokens":99999999999`), 400, "max_tokens", "invalid"},
		"max_tokens > ctx":    {"completions", text(`"max_tokens":5000`), 400, "max_tokens", "context_length_exceeded"},
		"max_tokens twice":    {"completions", text(`"max_tokens":5,"max_completion_tokens":6`), 400, "max_tokens", "invalid"},
		"temperature":         {"completions", text(`"temperature":2.5`), 400, "temperature", "invalid"},
		"temperature text":    {"completions", text(`"temperature":"hot"`), 400, "temperature", "invalid"},
		"top_p 0":             {"completions", text(`"top_p":0`), 400, "top_p", "invalid"},
		"top_p > 1":           {"completions", text(`"top_p":1.1`), 400, "top_p", "invalid"},
		"seed":                {"completions", text(`"seed":1.5`), 400, "seed", "invalid"},
		"stream":              {"completions", text(`"stream":"yes"`), 400, "stream", "invalid"},
		"stop empty":          {"completions", text(`"stop":""`), 400, "stop", "invalid"},
		"stop five":           {"completions", text(`"stop":["a","b","c","d","e"]`), 400, "stop", "invalid"},
		"stop number":         {"completions", text(`"stop":5`), 400, "stop", "invalid"},
		"options, no stream":  {"completions", text(`"stream_options":{"include_usage":true}`), 400, "stream_options", "invalid"},
		"options unknown":     {"completions", text(`"stream":true,"stream_options":{"x":1}`), 400, "stream_options", "invalid"},
		"prompt > context":    {"completions", `{"model":"tiny","prompt":"` + strings.Repeat("a", 5000) + `"}`, 400, "prompt", "context_length_exceeded"},
		"prompt > limit":      {"completions", `{"model":"tiny","prompt":"` + strings.Repeat("a", MaxPromptBytes+1) + `"}`, 413, "prompt", "too_large"},
		"body > limit":        {"completions", `{"model":"` + strings.Repeat("a", MaxBodyBytes) + `"}`, 413, "", "too_large"},

		"no messages":     {"chat/completions", chat(`[]`), 400, "messages", "invalid"},
		"messages text":   {"chat/completions", chat(`"Hi"`), 400, "messages", "invalid"},
		"no role":         {"chat/completions", chat(`[{"content":"Hi"}]`), 400, "messages[0].role", "invalid"},
		"role tool":       {"chat/completions", chat(`[{"role":"tool","content":"Hi"}]`), 400, "messages[0].role", "invalid"},
		"no content":      {"chat/completions", chat(`[{"role":"user"}]`), 400, "messages[0].content", "invalid"},
		"an image":        {"chat/completions", chat(`[{"role":"user","content":[{"type":"image_url"}]}]`), 400, "messages[0].content[0]", "invalid"},
		"tool calls":      {"chat/completions", chat(`[{"role":"assistant","content":"x","tool_calls":[{}]}]`), 400, "messages[0].tool_calls", "invalid"},
		"tools":           {"chat/completions", chat(`[{"role":"user","content":"x"}],"tools":[{}]`), 400, "tools", "invalid"},
		"response_format": {"chat/completions", chat(`[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}`), 400, "response_format", "invalid"},
		"logprobs true":   {"chat/completions", chat(`[{"role":"user","content":"x"}],"logprobs":true`), 400, "logprobs", "invalid"},
		"prompt in chat":  {"chat/completions", chat(`[{"role":"user","content":"x"}],"prompt":"x"`), 400, "prompt", "invalid"},
		"many messages":   {"chat/completions", chat(`[` + strings.Repeat(`{"role":"user","content":"x"},`, MaxMessages) + `{"role":"user","content":"x"}]`), 400, "messages", "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront()
			r := serve(t, f)
			res := r.post(t, "/v1/"+c.path, c.body)
			e := read(t, all(t, res)).Error
			param := ""
			if e != nil && e.Param != nil {
				param = *e.Param
			}
			if res.StatusCode != c.status || e == nil || e.Code != c.code || param != c.param || e.Message == "" || e.Type != "invalid_request_error" {
				t.Errorf("%d %+v %q", res.StatusCode, e, param)
			}
			if f.count() != 0 {
				t.Error("it was submitted")
			}
			if strings.Contains(res.Status, "500") || e != nil && len(e.Message) > 300 {
				t.Error("the error repeats the client's text")
			}
		})
	}
}

func TestBadHeadersAreRefused(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	for name, c := range map[string]struct {
		header, value string
		status        int
	}{
		"key too long":    {"Idempotency-Key", strings.Repeat("k", MaxKeyBytes+1), 400},
		"key with spaces": {"Idempotency-Key", "a b", 400},
		"deadline":        {headerDeadline, "soon", 400},
		"deadline 0":      {headerDeadline, "0", 400},
		"picked":          {headerPicked, "no-port", 400},
		"tenant":          {headerTenant, "../other", 400},
		"content type":    {"Content-Type", "text/plain", 415},
	} {
		res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`, c.header, c.value)
		if e := read(t, all(t, res)).Error; res.StatusCode != c.status || e == nil || e.Code != "invalid" {
			t.Errorf("%s: %d %+v", name, res.StatusCode, e)
		}
	}
	res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`, "X-Big", strings.Repeat("x", 2*MaxHeaderBytes))
	if all(t, res); res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Error(res.StatusCode)
	}
	if f.count() != 0 {
		t.Error("something was submitted")
	}
}

func TestEachSizeLimitIsNamedInItsRefusal(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	const body = `{"model":"tiny","prompt":"Hi"}`
	for what, c := range map[string]struct {
		body, filler string
		limit        int
	}{
		"body":   {`{"model":"` + strings.Repeat("a", MaxBodyBytes) + `"}`, "", MaxBodyBytes},
		"header": {body, strings.Repeat("x", MaxHeaderBytes), MaxHeaderBytes},
		"prompt": {`{"model":"tiny","prompt":"` + strings.Repeat("a", MaxPromptBytes+1) + `"}`, "", MaxPromptBytes},
	} {
		res := r.post(t, "/v1/completions", c.body, "X-Filler", c.filler)
		if e := read(t, all(t, res)).Error; e == nil || e.Code != "too_large" || !strings.Contains(e.Message, what) || !strings.Contains(e.Message, fmt.Sprint(c.limit)) {
			t.Errorf("%s: %d %+v", what, res.StatusCode, e)
		}
	}
	if f.count() != 0 {
		t.Error("something was submitted")
	}
}

// What is decoded under a grammar has a state that tokens do not tell: such a request
// is refused, most of all one that is to go on after D's death.
func TestAResumeOfGuidedDecodingIsRefused(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	for field, value := range map[string]string{"response_format": `{"type":"json_schema","json_schema":{}}`, "guided_json": `{}`, "guided_regex": `"a"`, "structured_outputs": `{}`} {
		res := r.post(t, "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"x"}],"`+field+`":`+value+`}`, headerResume, steps.ResumeReplay)
		if e := read(t, all(t, res)).Error; res.StatusCode != 400 || e == nil || e.Param == nil || *e.Param != field {
			t.Errorf("%s: %d %+v", field, res.StatusCode, e)
		}
	}
	if f.count() != 0 {
		t.Error("something was submitted")
	}
}

func TestAnEndpointPickersChoiceIsTaken(t *testing.T) {
	f := newFront()
	r := serve(t, f)
	all(t, r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`, headerPicked, "127.0.0.1:9000, 127.0.0.1:9001"))
	if got := f.last(t).Prefill; got != "127.0.0.1:9000" {
		t.Fatal(got)
	}
}

func TestOtherPathsAndMethodsAnswerInTheSameShape(t *testing.T) {
	r := serve(t, newFront())
	for _, c := range []struct {
		method, path string
		status       int
	}{{"GET", "/v1/completions", 405}, {"DELETE", "/v1/models", 405}, {"GET", "/v1/embeddings", 404}, {"GET", "/", 404}} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+r.http+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if e := read(t, all(t, res)).Error; res.StatusCode != c.status || e == nil || e.Type != "invalid_request_error" {
			t.Errorf("%s %s: %d %+v", c.method, c.path, res.StatusCode, e)
		}
		res.Body.Close()
	}
}

func TestAKeySpeaksForItsTenantOnly(t *testing.T) {
	f := newFront()
	blue := file(t, "tenants: {blue: {keys: [KEY(sk-blue)]}}")
	r := serve(t, f, func(c *Config) { c.Access = blue })
	for _, c := range []struct {
		authorization, tenant string
		status                int
	}{
		{"", "", 401}, {"Bearer sk-red", "", 401}, {"Basic sk-blue", "", 401}, {"Bearer ", "", 401},
		{"Bearer sk-blue", "red", 403}, {"Bearer sk-blue", "", 200}, {"bearer sk-blue", "blue", 200},
	} {
		res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"Hi"}`, "Authorization", c.authorization, headerTenant, c.tenant)
		if all(t, res); res.StatusCode != c.status {
			t.Errorf("%+v: %d", c, res.StatusCode)
		}
	}
	if f.count() != 2 || f.last(t).Tenant != "blue" {
		t.Fatal(f.submitted)
	}
}

func TestTheDigestIsOfWhatIsAskedAlone(t *testing.T) {
	digest := func(kind, body string) string {
		a, err := parse(kind, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		d := a.digest()
		return fmt.Sprintf("%x", d[:])
	}
	same := []string{
		`{"model":"tiny","prompt":"Hi"}`,
		`{"prompt":"Hi", "model":"tiny", "stream":true, "stream_options":{"include_usage":true}}`,
		`{"prompt":["Hi"],"model":"tiny","temperature":1,"top_p":1.0,"seed":null,"stop":[],"user":"me","n":1}`,
	}
	for _, body := range same {
		if got := digest(kindText, body); got != digest(kindText, same[0]) {
			t.Errorf("%s differs", body)
		}
	}
	seen := map[string]string{digest(kindText, same[0]): same[0]}
	for _, body := range []string{
		`{"model":"tiny","prompt":"Hi!"}`, `{"model":"tiny2","prompt":"Hi"}`, `{"model":"tiny","prompt":"Hi","max_tokens":256}`,
		`{"model":"tiny","prompt":"Hi","temperature":0}`, `{"model":"tiny","prompt":"Hi","top_p":0.5}`,
		`{"model":"tiny","prompt":"Hi","seed":0}`, `{"model":"tiny","prompt":"Hi","stop":"x"}`, `{"model":"tiny","prompt":"Hi","stop":["x","y"]}`,
	} {
		d := digest(kindText, body)
		if other, twice := seen[d]; twice {
			t.Errorf("%s and %s are told apart by nothing", body, other)
		}
		seen[d] = body
	}
	one := digest(kindChat, `{"model":"tiny","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`)
	two := digest(kindChat, `{"model":"tiny","messages":[{"role":"user","content":"a\nassistant: b"}]}`)
	if one == two || seen[digest(kindChat, `{"model":"tiny","messages":[{"role":"user","content":"Hi"}]}`)] != "" {
		t.Error("what renders alike was taken for the same request")
	}
	// Stored with idempotency keys, so it must not change between releases.
	const golden = "4805780fba01af2802c344b5da46612177eb0cb2c012544dc9341e212b78ca0d"
	if got := digest(kindText, same[0]); got != golden {
		t.Errorf("the canonical form changed: %s", got)
	}
}

func TestTheDefaultLengthIsCutToTheContext(t *testing.T) {
	a := newAsk(kindText)
	for _, c := range []struct {
		prompt uint64
		model  uint32
		want   uint32
	}{{10, 4096, DefaultMaxTokens}, {4000, 4096, 96}, {10, 0, DefaultMaxTokens}} {
		got, err := a.fit(c.prompt, "prompt", orchestrator.Model{MaxTokens: c.model})
		if err != nil || got != c.want {
			t.Errorf("%+v: %d %v", c, got, err)
		}
	}
}

func TestAConversationIsRenderedByTheRule(t *testing.T) {
	for want, messages := range map[string][]message{
		"Hi": {{"user", "Hi"}},
		"system: Be brief.\nuser: Hi\nassistant:": {{"system", "Be brief."}, {"user", "Hi"}},
	} {
		if got := render(messages); got != want {
			t.Errorf("%q", got)
		}
	}
}

func FuzzQuotedTextIsJSON(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c\n\t\x00\x1f", "ÄÖ𝄞", "\xff\xc3", "\xe2\x82"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal([]byte(quote(s)), &got); err != nil {
			t.Fatalf("%q: %v", quote(s), err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); got != want && len([]rune(got)) != len([]rune(s)) {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

func FuzzABodyIsReadOrRefused(f *testing.F) {
	f.Add(`{"model":"tiny","prompt":"Hi","stop":["a"],"stream":true,"stream_options":{"include_usage":true}}`)
	f.Add(`{"model":"tiny","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, kind := range []string{kindText, kindChat} {
			a, err := parse(kind, []byte(body))
			if err != nil {
				if asRefusal(err).Status() != 400 {
					t.Fatalf("%v", err)
				}
				continue
			}
			a.tenant = DefaultTenant
			if a.check() == nil {
				var same bytes.Buffer // another way to write it is the same request, so the same key's
				if err := json.Compact(&same, []byte(body)); err != nil {
					t.Fatalf("took %q: %v", body, err)
				}
				if b, err := parse(kind, same.Bytes()); err != nil || b.digest() != a.digest() {
					t.Fatalf("%q is another request than %q: %v", same.Bytes(), body, err)
				}
				if r, err := a.request(orchestrator.Model{MaxTokens: 64}, counted{prompt: a.prompt}); err == nil && (r.Sampling.MaxTokens == 0 || r.Sampling.MaxTokens > 64) {
					t.Fatal(r.Sampling)
				}
			}
		}
	})
}

// The hot path of a stream builds each piece without allocating.
func BenchmarkPiece(b *testing.B) {
	c := newChunk(kindChat, "h-1", "tiny", 1, false)
	b.ReportAllocs()
	for b.Loop() {
		c.text("hello")
		c.buf = c.buf[:0]
	}
}

func TestAModelThatTokenizesCountsAndMakesItsOwnPrompts(t *testing.T) {
	f := newFront()
	f.models[0].Tokenizes, f.models[0].MaxTokens = true, 20
	r := serve(t, f)
	all(t, r.post(t, "/v1/completions", `{"model":"tiny","prompt":"0123456789abcdef","max_tokens":16}`))
	all(t, r.post(t, "/v1/chat/completions", `{"model":"tiny","messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}],"max_tokens":1}`))
	f.mu.Lock()
	got := f.submitted
	f.mu.Unlock()
	if len(got) != 2 || got[0].Tokens != 4 || string(got[0].Prompt) != "0123456789abcdef" {
		t.Fatalf("%+v", got)
	}
	if string(got[1].Prompt) != "<system>a<user>b" || got[1].Tokens != 4 {
		t.Errorf("chat: %q of %d tokens", got[1].Prompt, got[1].Tokens)
	}
	if res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"0123456789abcdef","max_tokens":17}`); res.StatusCode != 400 {
		t.Errorf("21 tokens in a context of 20: %d", res.StatusCode)
	}
	f.tokenize = handoff.Errorf(handoff.CodeUnavailable, "nobody counts")
	if res := r.post(t, "/v1/completions", `{"model":"tiny","prompt":"x"}`); res.StatusCode != 503 {
		t.Errorf("no engine to count: %d", res.StatusCode)
	}
}
