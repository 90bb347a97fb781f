package telemetry

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/identity/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestLogsAreJSONAndNameTheirProcess(t *testing.T) {
	var out bytes.Buffer
	log, err := Logger(&out, "serve", "info")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("dropped")
	log.Info("kept", "handoff", "h1")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	if line["process"] != "serve" || line["handoff"] != "h1" || line["msg"] != "kept" {
		t.Fatal(line)
	}
	if _, err := Logger(&out, "serve", "loud"); err == nil {
		t.Fatal("an unknown level was accepted")
	}
}

func TestAProcessServesMetricsAndHealth(t *testing.T) {
	var missing error
	s, err := Serve("127.0.0.1:0", nil, Registry("test"), func(context.Context) error { return missing })
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + s.Address
	if code, body := get(t, base+"/metrics"); code != 200 || !strings.Contains(body, `surehand_build_info{process="test"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(t, base+"/readyz"); code != 200 {
		t.Error(code)
	}
	missing = errors.New("no engine")
	if code, body := get(t, base+"/readyz"); code != 503 || !strings.Contains(body, "no engine") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := get(t, base+"/healthz"); code != 200 {
		t.Error("alive does not depend on ready")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Off loopback a probe of health needs no certificate, and metrics do.
func TestMetricsLeaveLoopbackByTLSOnly(t *testing.T) {
	if _, err := Serve("0.0.0.0:0", nil, Registry("test"), nil); !errors.Is(err, ErrNotLoopback) {
		t.Fatal(err)
	}
	by, err := authority.New()
	if err != nil {
		t.Fatal(err)
	}
	files, err := by.Write(t.TempDir(), "own", authority.Leaf{})
	if err != nil {
		t.Fatal(err)
	}
	secure, err := identity.Listener(files, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve("0.0.0.0:0", secure, Registry("test"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, port, _ := net.SplitHostPort(s.Address)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path  string
		certs []tls.Certificate
		want  int
	}{{"/healthz", nil, 200}, {"/readyz", nil, 200}, {"/metrics", nil, 403}, {"/metrics", []tls.Certificate{pair}, 200}} {
		web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: c.certs}}}
		r, err := web.Get("https://127.0.0.1:" + port + c.path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != c.want {
			t.Errorf("%s with %d certificates: %d, want %d", c.path, len(c.certs), r.StatusCode, c.want)
		}
	}
}

func TestTheFirstRefusalIsNamed(t *testing.T) {
	ok := func(context.Context) error { return nil }
	w := httptest.NewRecorder()
	Ready(ok, func(context.Context) error { return errors.New("temporal") }, ok).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "temporal") {
		t.Fatal(w.Code, w.Body)
	}
}
