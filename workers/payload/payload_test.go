package payload

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(b byte) []byte { return bytes.Repeat([]byte{b}, KeyBytes) }

func codec(t *testing.T, keys ...[]byte) *Codec {
	t.Helper()
	c, err := New(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sealed(t *testing.T, c *Codec, v any) *commonpb.Payload {
	t.Helper()
	p, err := Converter(c).ToPayload(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestASealedPayloadSaysNothingAndOpensWhole(t *testing.T) {
	c := codec(t, key(1))
	p := sealed(t, c, map[string]string{"engine": "p1"})
	if raw, err := proto.Marshal(p); err != nil || bytes.Contains(raw, []byte("p1")) || bytes.Contains(raw, []byte("json")) {
		t.Errorf("it says %q, %v", raw, err)
	}
	var v map[string]string
	if err := Converter(c).FromPayload(p, &v); err != nil || v["engine"] != "p1" {
		t.Errorf("%v, %v", v, err)
	}
	if again := sealed(t, c, map[string]string{"engine": "p1"}); bytes.Equal(again.Data, p.Data) {
		t.Error("the same payload is sealed to the same bytes")
	}
}

func TestAKeyIsRotatedWhileOldHistoriesStayReadable(t *testing.T) {
	old := sealed(t, codec(t, key(1)), "before")
	both := codec(t, key(2), key(1))
	var v string
	if err := Converter(both).FromPayload(old, &v); err != nil || v != "before" {
		t.Errorf("%q, %v", v, err)
	}
	if id := string(sealed(t, both, "after").Metadata[metaKey]); id != KeyID(key(2)) {
		t.Errorf("sealed under %s", id)
	}
	if err := Converter(codec(t, key(2))).FromPayload(old, &v); handoff.CodeOf(err) != handoff.CodeGone {
		t.Errorf("without its key: %v", err)
	}
}

func TestAChangedPayloadDoesNotOpen(t *testing.T) {
	c := codec(t, key(1), key(2))
	for name, change := range map[string]func(*commonpb.Payload){
		"a byte":      func(p *commonpb.Payload) { p.Data[len(p.Data)/2] ^= 1 },
		"its length":  func(p *commonpb.Payload) { p.Data = p.Data[:4] },
		"another key": func(p *commonpb.Payload) { p.Metadata[metaKey] = []byte(KeyID(key(2))) },
	} {
		p := sealed(t, c, "x")
		change(p)
		if _, err := c.Decode([]*commonpb.Payload{p}); err == nil {
			t.Errorf("%s was changed, and it opens", name)
		}
	}
}

func TestWhatWasWrittenBeforeThereWereKeysIsStillRead(t *testing.T) {
	p, err := converter.GetDefaultDataConverter().ToPayload("clear")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := codec(t, key(1)).Decode([]*commonpb.Payload{p}); err != nil || out[0] != p {
		t.Errorf("%v, %v", out, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("x"), "k", encoding)
	f.Add([]byte{}, KeyID(key(1)), encoding)
	c, err := New(key(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, id, enc string) {
		p := &commonpb.Payload{Data: data, Metadata: map[string][]byte{converter.MetadataEncoding: []byte(enc), metaKey: []byte(id)}}
		if out, err := c.Decode([]*commonpb.Payload{p}); err == nil && enc == encoding {
			t.Errorf("%x opens to %v", data, out)
		}
	})
}

const origin = "http://127.0.0.1:8233"

func server(t *testing.T) (*httptest.Server, *commonpb.Payload) {
	t.Helper()
	c := codec(t, key(1))
	mux := http.NewServeMux()
	s := Server{Codec: c, Origin: origin + "/",
		Operator: func(_ *http.Request, a string) error {
			if a != "Bearer good" {
				return handoff.Errorf(handoff.CodeDenied, "no")
			}
			return nil
		},
		Refuse: func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusForbidden) }}
	s.Register(mux)
	h := httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h, sealed(t, c, "opened")
}

func ask(t *testing.T, h *httptest.Server, method, path, body string, header map[string]string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestOnlyAnOperatorFromTheUIsPagesOpensPayloads(t *testing.T) {
	h, p := server(t)
	body, err := protojson.Marshal(&commonpb.Payloads{Payloads: []*commonpb.Payload{p}})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		header map[string]string
		want   int
	}{
		"nobody":       {nil, 403},
		"a tenant":     {map[string]string{"Authorization": "Bearer tenant", "Origin": origin}, 403},
		"another page": {map[string]string{"Authorization": "Bearer good", "Origin": "http://evil.example"}, 403},
		"an operator":  {map[string]string{"Authorization": "Bearer good", "Origin": origin}, 200},
		"a browser":    {map[string]string{"Cookie": cookieName + "=good", "Origin": origin}, 200},
		"a bad cookie": {map[string]string{"Cookie": cookieName + "=bad", "Origin": origin}, 403},
		"a command":    {map[string]string{"Authorization": "Bearer good"}, 200},
	} {
		x.header = merge(x.header, "Content-Type", "application/json")
		resp := ask(t, h, http.MethodPost, "/codec/decode", string(body), x.header)
		if resp.StatusCode != x.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, x.want)
		}
		if x.want != 200 {
			continue
		}
		var out struct{ Payloads []struct{ Data []byte } }
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Payloads) != 1 || string(out.Payloads[0].Data) != `"opened"` {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	if resp := ask(t, h, http.MethodPost, "/codec/encode", string(body), map[string]string{"Authorization": "Bearer good"}); resp.StatusCode == 200 {
		t.Error("it seals for callers")
	}
}

func merge(m map[string]string, k, v string) map[string]string {
	out := map[string]string{k: v}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func TestABrowserMayAskBeforeItAsks(t *testing.T) {
	h, _ := server(t)
	resp := ask(t, h, http.MethodOptions, "/codec/decode", "", map[string]string{"Origin": origin, "Access-Control-Request-Method": "POST"})
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != origin || resp.Header.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	resp = ask(t, h, http.MethodOptions, "/codec/decode", "", map[string]string{"Origin": "http://evil.example"})
	if resp.StatusCode == 204 || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another page: %d %v", resp.StatusCode, resp.Header)
	}
}

func TestAKeyIsKeptOutOfReachOfScriptsAndOtherSites(t *testing.T) {
	h, _ := server(t)
	form := func(key string, header map[string]string) *http.Response {
		return ask(t, h, http.MethodPost, "/codec/", url.Values{"key": {key}}.Encode(), merge(header, "Content-Type", "application/x-www-form-urlencoded"))
	}
	resp := form("good", nil)
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusSeeOther || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Path != Path {
		t.Errorf("%d %v", resp.StatusCode, cookies)
	}
	if resp := form("bad", nil); resp.StatusCode != 403 || len(resp.Cookies()) != 0 {
		t.Errorf("a bad key: %d %v", resp.StatusCode, resp.Cookies())
	}
	if resp := form("good", map[string]string{"Origin": "http://evil.example"}); resp.StatusCode != 403 {
		t.Errorf("another site's form: %d", resp.StatusCode)
	}
}
