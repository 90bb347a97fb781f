package daemon_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
	"github.com/surehand/surehand/transferd/identity"
	trial "github.com/surehand/surehand/transferd/identity/authority"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get(url)
	check(t, err)
	b, err := io.ReadAll(r.Body)
	check(t, err)
	check(t, r.Body.Close())
	return r.StatusCode, string(b)
}

func TestMetricsTellBytesOfCommitsApartFromBytesThatMoved(t *testing.T) {
	ph := startHost(t, "tp")
	dh := startHost(t, "td", func(c *daemon.Config) { c.Metrics = "127.0.0.1:0" })
	url := "http://" + dh.MetricsAddress()
	if code, _ := get(t, url+"/readyz"); code != http.StatusServiceUnavailable {
		t.Fatalf("ready without an engine: %d", code)
	}
	m := newMove(t, ph, attach(t, ph.cfg.EngineSocket, "p1"), dh, attach(t, dh.cfg.EngineSocket, "d1"))
	if code, _ := get(t, url+"/readyz"); code != http.StatusOK {
		t.Fatal(code)
	}
	if code, _ := get(t, url+"/healthz"); code != http.StatusOK {
		t.Fatal(code)
	}
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, text := get(t, url+"/metrics")
	for _, want := range []string{"surehand_transferd_pulled_bytes_total 98404", "surehand_transferd_committed_bytes_total 0", `surehand_transferd_targets{state="validated"} 1`} {
		if !strings.Contains(text, want) {
			t.Fatalf("no %q in %s", want, text)
		}
	}
	_, err = m.commit()
	check(t, err)
	stale := m.plan
	stale.D.Incarnation++
	_, err = dh.control.Commit(background(t), stale, m.token, "", 0)
	wantCode(t, err, handoff.CodeConflict)
	_, text = get(t, url+"/metrics")
	for _, want := range []string{"surehand_transferd_committed_bytes_total 98404", `surehand_transferd_fenced_total{code="conflict"} 1`, "surehand_transferd_quarantined_bytes 0"} {
		if !strings.Contains(text, want) {
			t.Fatalf("no %q in %s", want, text)
		}
	}
}

// Off loopback a probe needs no certificate, and metrics do.
func TestMetricsLeaveLoopbackByTLSOnly(t *testing.T) {
	dir := t.TempDir()
	bare := daemon.Config{Node: "td", Data: dir, EngineSocket: filepath.Join(dir, "e.sock"), Control: "unix://" + filepath.Join(dir, "c.sock"), Peer: "127.0.0.1:0", Metrics: "0.0.0.0:0"}
	if _, err := daemon.Start(bare); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Fatal(err)
	}
	by, err := trial.New()
	check(t, err)
	files, err := by.Write(t.TempDir(), "own", trial.Leaf{})
	check(t, err)
	h := startHost(t, "td", func(c *daemon.Config) {
		c.Metrics = "0.0.0.0:0"
		c.MetricsTLS, err = identity.Listener(files, false)
		check(t, err)
	})
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	check(t, err)
	_, port, err := net.SplitHostPort(h.MetricsAddress())
	check(t, err)
	for _, c := range []struct {
		path  string
		certs []tls.Certificate
		want  int
	}{{"/healthz", nil, http.StatusOK}, {"/metrics", nil, http.StatusForbidden}, {"/metrics", []tls.Certificate{pair}, http.StatusOK}} {
		web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: c.certs}}}
		r, err := web.Get("https://127.0.0.1:" + port + c.path)
		check(t, err)
		check(t, r.Body.Close())
		if r.StatusCode != c.want {
			t.Errorf("%s with %d certificates: %d, want %d", c.path, len(c.certs), r.StatusCode, c.want)
		}
	}
}

func TestEveryTransitionIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	ph := startHost(t, "tp")
	dh := startHost(t, "td", func(c *daemon.Config) { c.TraceFile = file })
	m := newMove(t, ph, attach(t, ph.cfg.EngineSocket, "p1"), dh, attach(t, dh.cfg.EngineSocket, "d1"))
	ctx, stop := context.WithCancel(background(t))
	var mu sync.Mutex
	var told []string
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = dh.control.Watch(ctx, func(e *transferv1.TraceEvent) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e.GetEvent())
		})
	})
	eventually(t, "the watcher hears something", func() bool {
		probe := newMove(t, ph, m.p, dh, m.d)
		_, err := probe.undo()
		check(t, err)
		mu.Lock()
		defer mu.Unlock()
		return len(told) > 0
	})
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	want := []string{"open", "post", "land", "verify", "ask", "yes", "commit"}
	eventually(t, "the watcher heard everything", func() bool {
		mu.Lock()
		defer mu.Unlock()
		i := 0
		for _, e := range told {
			if i < len(want) && e == want[i] {
				i++
			}
		}
		return i == len(want)
	})
	stop()
	wg.Wait()
	check(t, dh.Close())

	f, err := os.Open(file)
	check(t, err)
	defer func() { check(t, f.Close()) }()
	lines := bufio.NewScanner(f)
	last := ""
	for lines.Scan() {
		var l struct{ Node, Event, To, Handoff string }
		check(t, json.Unmarshal(lines.Bytes(), &l))
		if l.Handoff == string(m.plan.Attempt.Handoff) {
			last = l.Event + " " + l.To
		}
	}
	if last != "commit committed" {
		t.Fatalf("the file ends with %q", last)
	}
}

// A lease's end is told with the state that it ended, on both sides.
func TestALeasesEndTellsWhatItEnded(t *testing.T) {
	t.Parallel()
	ph := startHost(t, "tp", lease(shortLease))
	dh := startHost(t, "td", lease(shortLease))
	m := newMove(t, ph, attach(t, ph.cfg.EngineSocket, "p1"), dh, attach(t, dh.cfg.EngineSocket, "d1"))
	ctx, stop := context.WithCancel(background(t))
	defer stop()
	var mu sync.Mutex
	ends := map[string]string{}
	heard := map[*host]bool{}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, h := range []*host{ph, dh} {
		wg.Go(func() {
			_ = h.control.Watch(ctx, func(e *transferv1.TraceEvent) {
				mu.Lock()
				defer mu.Unlock()
				heard[h] = true
				if e.GetEvent() == "expire" && e.GetAttempt().GetHandoff() == string(m.plan.Attempt.Handoff) {
					ends[e.GetMachine()] = e.GetFrom() + ">" + e.GetTo()
				}
			})
		})
	}
	eventually(t, "both watchers hear something", func() bool {
		probe := newMove(t, ph, m.p, dh, m.d)
		_, err := probe.undo()
		check(t, err)
		_, err = ph.control.Undo(background(t), probe.plan, probe.plan.Attempt.Operation("undo"), client.Sides{Source: true})
		check(t, err)
		mu.Lock()
		defer mu.Unlock()
		return heard[ph] && heard[dh]
	})
	m.ready()
	eventually(t, "both leases ended", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ends) == 2
	})
	if ends["target"] != "opened>closed" || ends["source"] != "sealed>closed" {
		t.Fatal(ends)
	}
}
