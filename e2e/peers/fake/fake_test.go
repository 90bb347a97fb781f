package fake

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/surehand/surehand/e2e/peers/fake.(*sides).hear"),
		goleak.IgnoreAnyFunction("github.com/surehand/surehand/e2e/peers/fake.(*sides).answer")) // connections that end with the process
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start runs one engine until the test ends.
func start(t *testing.T, o Options, side net.Listener) (*Engine, string) {
	t.Helper()
	l := listen(t)
	if side != nil {
		o.Side = side.Addr().String()
	}
	e := New(o)
	done := make(chan error, 1)
	go func() { done <- e.Serve(l, side) }()
	t.Cleanup(func() {
		_ = l.Close() // which ends Serve
		<-done
		if side != nil {
			_ = side.Close()
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return e, "http://" + l.Addr().String()
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestDFetchesWhatPHolds(t *testing.T) {
	p, pURL := start(t, Options{Name: "p", Kind: VLLM}, listen(t))
	_, dURL := start(t, Options{Name: "d", Kind: VLLM}, nil)
	status, text := post(t, pURL, `{"model":"fake","prompt":"abc","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`)
	_, params, ok := strings.Cut(text, `"kv_transfer_params":`)
	if status != http.StatusOK || !ok || p.heldNow() != 1 {
		t.Fatalf("%d %s, %d held", status, text, p.heldNow())
	}
	status, text = post(t, dURL, fmt.Sprintf(`{"model":"fake","prompt":"abc","max_tokens":3,"stream":true,"kv_transfer_params":%s}`, strings.TrimSuffix(params, "}")))
	if status != http.StatusOK || strings.Count(text, `"text":" w`) != 3 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("%d %s", status, text)
	}
}

func TestAnEngineThatIsFullOrAskedForAnotherModelRefuses(t *testing.T) {
	e, url := start(t, Options{MaxRunning: 1}, nil)
	e.running.Add(1)
	if status, _ := post(t, url, `{"model":"fake","prompt":"a"}`); status != http.StatusServiceUnavailable {
		t.Errorf("full: %d", status)
	}
	e.running.Add(-1)
	if status, _ := post(t, url, `{"model":"other","prompt":"a"}`); status != http.StatusNotFound {
		t.Errorf("another model: %d", status)
	}
}
