package traffic

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func piece(text string) string {
	return fmt.Sprintf(`data: {"choices":[{"index":0,"text":%q,"finish_reason":null}],"usage":null}`+"\n\n", text)
}

const (
	last  = `data: {"choices":[{"index":0,"text":"","finish_reason":"length"}],"usage":null}` + "\n\n"
	usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0,"direct_tokens":3,"recomputed_tokens":0}}}` + "\n\n"
	done  = "data: [DONE]\n\n"
	typed = `data: {"error":{"message":"m","type":"server_error","code":"stream_broken","position":1}}` + "\n\n"
)

// answered serves one canned answer and gives what the client made of it.
func answered(t *testing.T, status int, text string) Answer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	c := NewClient(strings.TrimPrefix(server.URL, "http://"))
	defer c.Close()
	return c.Send(t.Context(), Ask{Model: "m", Prompt: "p", MaxTokens: 2})
}

func TestAWholeStreamIsCounted(t *testing.T) {
	a := answered(t, 200, piece(" w0")+piece(" w1")+last+usage+done)
	if err := a.Counted(2); err != nil {
		t.Fatal(err)
	}
	if a.Usage.Direct != 3 || a.Finish != "length" || len(a.Gaps) != 1 {
		t.Fatalf("%+v", a)
	}
}

// TestEveryFaultOfAStreamIsSeen holds the checker to what it claims to find.
func TestEveryFaultOfAStreamIsSeen(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"a token is missing", piece(" w0") + piece(" w2") + last + usage + done},
		{"a token comes twice", piece(" w0") + piece(" w0") + last + usage + done},
		{"the order is wrong", piece(" w1") + piece(" w0") + last + usage + done},
		{"another's token", piece(" w0") + piece(" x1") + last + usage + done},
		{"one too few", piece(" w0") + last + usage + done},
		{"no end", piece(" w0") + piece(" w1")},
		{"no finish reason", piece(" w0") + piece(" w1") + usage + done},
		{"no DONE", piece(" w0") + piece(" w1") + last + usage},
		{"something after DONE", piece(" w0") + last + usage + done + piece(" w1")},
		{"usage of other tokens", piece(" w0") + piece(" w1") + piece(" w2") + last + usage + done},
		{"no JSON", "data: {\n\n" + done},
	} {
		if err := answered(t, 200, c.text).Counted(2); err == nil {
			t.Errorf("%s: taken for whole", c.name)
		}
	}
}

func TestATypedEndIsToldFromABrokenOne(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		text   string
		ok     bool
	}{
		{"an error event after a token", 200, piece(" w0") + typed, true},
		{"an error event and more", 200, piece(" w0") + typed + piece(" w1"), false},
		{"an error event and DONE", 200, piece(" w0") + typed + done, false},
		{"a typed status", 503, `{"error":{"message":"m","type":"server_error","code":"unavailable"}}`, true},
		{"a bare status", 502, "Bad Gateway", false},
		{"an error without a code", 503, `{"error":{"message":"m","type":"server_error"}}`, false},
		{"an empty stream", 200, "", false},
		{"an error event without a position", 200, piece(" w0") + `data: {"error":{"message":"m","type":"server_error","code":"engine"}}` + "\n\n", false},
	} {
		if err := answered(t, c.status, c.text).Typed(); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAClientComesAgainOnlyWhenToldTo(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		refused int
	}{{"unavailable", 503, 2}, {"too many", 429, 2}, {"a conflict", 409, 0}, {"outcome unknown", 500, 0}} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked < 3 {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(`{"error":{"message":"m","type":"server_error","code":"x"}}`))
				return
			}
			_, _ = w.Write([]byte(piece(" w0") + piece(" w1") + last + usage + done))
		}))
		client := NewClient(strings.TrimPrefix(server.URL, "http://"))
		a, refused := client.Insist(t.Context(), Ask{Model: "m", Prompt: "p", MaxTokens: 2}, time.Minute, time.Millisecond)
		if refused != c.refused || (a.Counted(2) == nil) != (c.refused > 0) {
			t.Errorf("%s: refused %d times, then %v", c.name, refused, a.Counted(2))
		}
		client.Close()
		server.Close()
	}
}

func TestGeneratedItemsHaveTheQuantilesOfTheTrace(t *testing.T) {
	items := Generated(1, 20000)
	var prompts, outputs []int
	for _, it := range items {
		prompts, outputs = append(prompts, it.Prompt), append(outputs, it.Output)
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"median prompt", float64(Quantile(prompts, .5)), 1020}, {"p90 prompt", float64(Quantile(prompts, .9)), 2735},
		{"median answer", float64(Quantile(outputs, .5)), 129}, {"p90 answer", float64(Quantile(outputs, .9)), 424},
		{"seconds", items[len(items)-1].At.Seconds(), 20000 * 3501.7 / 19365},
	} {
		if c.got < c.want*.93 || c.got > c.want*1.07 {
			t.Errorf("%s is %g, want about %g", c.name, c.got, c.want)
		}
	}
}

func TestAnAzureTraceIsRead(t *testing.T) {
	items, err := ReadAzure(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\n"+
		"2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"), 5)
	if err != nil || len(items) != 2 {
		t.Fatal(items, err)
	}
	if items[1].At != 4314579*time.Microsecond || items[1].Prompt != 396 || items[1].Output != 109 {
		t.Fatalf("%+v", items[1])
	}
	if _, err := ReadAzure(strings.NewReader("h,h,h\nx,1,2\n"), 5); err == nil {
		t.Fatal("a malformed time was read")
	}
}
