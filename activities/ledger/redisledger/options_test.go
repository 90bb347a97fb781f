package redisledger

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/contracts/handoff"
)

func TestPlaintextLeavesTheHostOnlyOnRequest(t *testing.T) {
	for url, code := range map[string]handoff.Code{
		"redis://127.0.0.1:6379":         handoff.CodeNone,
		"redis://localhost:6379":         handoff.CodeNone,
		"redis://[::1]:6379":             handoff.CodeNone,
		"unix:///run/redis.sock":         handoff.CodeNone,
		"rediss://u:p@redis.example:1/2": handoff.CodeNone,
		"redis://redis.example:6379":     handoff.CodeDenied,
		"redis://192.0.2.1:6379":         handoff.CodeDenied,
		"http://127.0.0.1":               handoff.CodeInvalid,
		"redis://u:pa%zz@127.0.0.1":      handoff.CodeInvalid,
	} {
		l, err := Open(Options{URL: url})
		want(t, url, handoff.CodeOf(err), code)
		if l != nil {
			l.Close()
		}
	}
	for _, o := range []Options{
		{URL: "redis://192.0.2.1:6379", Plaintext: true},
		{URL: "redis://192.0.2.1:6379", TLS: &tls.Config{MinVersion: tls.VersionTLS13}},
	} {
		l, err := Open(o)
		want(t, o.URL, handoff.CodeOf(err), handoff.CodeNone)
		l.Close()
	}
}

func TestClientThatRetriesByItselfIsRefused(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer c.Close()
	_, err := New(c)
	want(t, "a client with default retries", handoff.CodeOf(err), handoff.CodeInvalid)
	l, err := Open(Options{URL: "redis://127.0.0.1:1"})
	want(t, "our own client", handoff.CodeOf(err), handoff.CodeNone)
	defer l.Close()
	if n := l.client.(*redis.Client).Options().MaxRetries; n != 0 {
		t.Fatalf("%d retries", n)
	}
}

func TestPasswordAndUnixSocketWork(t *testing.T) {
	s := startServer(t)
	s.await(func(c *redis.Client) error { return c.ConfigSet(t.Context(), "requirepass", "secret").Err() })
	defer func() { s.kill() }()
	for url, code := range map[string]handoff.Code{
		"unix://:secret@" + filepath.Join(s.dir, "s"): handoff.CodeNone,
		"redis://:secret@" + s.addr():                 handoff.CodeNone,
		"redis://:wrong@" + s.addr():                  handoff.CodeUnavailable,
		"redis://" + s.addr():                         handoff.CodeUnavailable,
	} {
		l, err := Open(Options{URL: url})
		want(t, url, handoff.CodeOf(err), handoff.CodeNone)
		want(t, url, handoff.CodeOf(l.MarkCancelled(t.Context(), "h1", time.Minute)), code)
		l.Close()
	}
}

func TestTLSIsVerified(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	defer web.Close()
	m := miniredis.NewMiniRedis()
	if err := m.StartTLS(web.TLS); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	trusting := web.Client().Transport.(*http.Transport).TLSClientConfig
	for code, o := range map[handoff.Code]Options{
		handoff.CodeNone:        {URL: "rediss://" + m.Addr(), TLS: trusting},
		handoff.CodeUnavailable: {URL: "rediss://" + m.Addr()}, // nobody vouches for it
	} {
		o.Timeout = patience
		l, err := Open(o)
		want(t, "open", handoff.CodeOf(err), handoff.CodeNone)
		want(t, "mark", handoff.CodeOf(l.MarkCancelled(t.Context(), "h1", time.Minute)), code)
		l.Close()
	}
}

func TestDriverRemarksGoToOurLog(t *testing.T) {
	var out bytes.Buffer
	LogTo(slog.New(slog.NewJSONHandler(&out, nil)))
	defer redis.SetLogger(driverLog{slog.Default()})
	l, err := Open(Options{URL: "redis://127.0.0.1:1"})
	want(t, "open", handoff.CodeOf(err), handoff.CodeNone)
	defer l.Close()
	want(t, "mark", handoff.CodeOf(l.MarkCancelled(t.Context(), "h1", time.Minute)), handoff.CodeUnavailable)
	if !strings.Contains(out.String(), `"msg":"redis driver"`) {
		t.Fatalf("log %q", out.String())
	}
}
