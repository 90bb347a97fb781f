// Package observe runs a real Prometheus over a real fleet and asks it all that
// the dashboard and the alerts ask.
package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/deploy/observe"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrapes of every process must lie in the window of a rate.
const (
	scrapeEvery = "1s"
	window      = "30s"
	patience    = 60 * time.Second
)

// promised are the names that others build on, in the style of the field's routers,
// and a counter whose first increase an alert waits for.
var promised = []string{`surehand_handoffs_total{outcome!="",phase!="",reason!=""}`, `surehand_handoff_phase_duration_seconds_count{phase!=""}`,
	"surehand_added_ttft_seconds_count > 0", `surehand_fenced_total{reason!=""}`, `surehand_kv_blocks_unreleased{engine!=""}`, "surehand_recomputed_tokens_total",
	`surehand_handoffs_total{reason="outcome_unknown"} == 0`}

// Every query of the dashboard returns data after some traffic, a refusal and a
// client that leaves.
func TestEveryQueryOfTheDashboardReturnsData(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs prometheus on PATH (Debian's package)")
	}
	p := fleettest.Built(t, false)
	s, err := chaos.Open(t.Context(), p, chaos.Options())
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	prom := start(t, program, s.Fleet)
	prom.await(t, `sum(up{job=~"surehand-.*"})`, func(v string) bool {
		return v == fmt.Sprint(len(s.Scrapes("gateway"))+len(s.Scrapes("engine"))+len(s.Scrapes("transferd")))
	})
	drive(t, s)
	for _, row := range observe.Rows {
		for _, panel := range row.Panels {
			for _, q := range panel.Queries {
				expr := strings.ReplaceAll(q.Expr, "$__rate_interval", window)
				prom.await(t, expr, func(v string) bool { return v != "" })
			}
		}
	}
	for _, name := range promised {
		prom.await(t, name, func(v string) bool { return v != "" })
	}
	for _, expr := range alerts(t, prom) {
		if _, err := prom.ask(t.Context(), expr); err != nil {
			t.Errorf("%s: %s", expr, err)
		}
	}
}

// drive is traffic of every kind that the dashboard tells apart.
func drive(t *testing.T, s *chaos.Stage) {
	t.Helper()
	c := s.Clients["g1"]
	for range 3 {
		if err := c.Send(t.Context(), s.Ask(chaos.ShortPrompt, 5)).Whole(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	a := s.Ask(chaos.LongPrompt, chaos.AnswerLong)
	a.OnPiece = func(int) { leave() }
	c.Send(ctx, a)
	leave()
	a = s.Ask(chaos.LongPrompt, chaos.AnswerLong)
	a.Deadline = 50 * time.Millisecond // shorter than P's 300 ms
	if refused := c.Send(t.Context(), a); refused.Failure == nil {
		t.Fatalf("a deadline that cannot be met: %s", chaos.Verdict(refused))
	}
	for range 3 {
		if err := c.Send(t.Context(), s.Ask(chaos.ShortPrompt, 5)).Whole(); err != nil {
			t.Fatal(err)
		}
	}
}

// server is a Prometheus.
type server struct {
	address string
	http    http.Client
}

func start(t *testing.T, program string, f *fleet.Fleet) *server {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../../deploy/observe")
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(root, "alerts.yml"), filepath.Join(dir, "alerts.yml"), nil)
	copyFile(t, filepath.Join(root, "prometheus.yml"), filepath.Join(dir, "prometheus.yml"), func(text string) string {
		return strings.ReplaceAll(text, "_interval: 5s", "_interval: "+scrapeEvery)
	})
	if err := os.Mkdir(filepath.Join(dir, "targets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"gateway", "engine", "transferd"} {
		text, err := json.Marshal([]map[string]any{{"targets": f.Scrapes(kind)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "targets", kind+".json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+s.address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := errors.Join(cmd.Wait(), logs.Close()); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(logs.Name()); err == nil && t.Failed() {
			t.Logf("prometheus: %s", text)
		}
	})
	return s
}

func copyFile(t *testing.T, from, to string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		text = []byte(change(string(text)))
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask gives the first number that an expression has now; empty: none. A quantile
// of nothing is none.
func (s *server) ask(ctx context.Context, expr string) (string, error) {
	var got struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := s.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &got); err != nil {
		return "", err
	}
	if got.Status != "success" {
		return "", errors.New(got.Error)
	}
	for _, r := range got.Data.Result {
		if v := fmt.Sprint(r.Value[1]); v != "NaN" {
			return v, nil
		}
	}
	return "", nil
}

func (s *server) get(ctx context.Context, path string, into any) (err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+path, nil)
	if err != nil {
		return err
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return json.NewDecoder(resp.Body).Decode(into)
}

// await asks until an answer is right.
func (s *server) await(t *testing.T, expr string, right func(string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		got, err := s.ask(ctx, expr)
		if err == nil && right(got) {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s gives %q, %v", expr, got, err)
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// alerts are the expressions of the rules as Prometheus loaded them.
func alerts(t *testing.T, s *server) []string {
	t.Helper()
	var got struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Query, Health, LastError string }
			}
		}
	}
	if err := s.get(t.Context(), "/api/v1/rules", &got); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range got.Data.Groups {
		for _, r := range g.Rules {
			if r.Health == "err" {
				t.Errorf("%s: %s", r.Query, r.LastError)
			}
			out = append(out, r.Query)
		}
	}
	if len(out) == 0 {
		t.Error("no rule is loaded")
	}
	return out
}
