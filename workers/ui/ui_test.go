package ui

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDenied = errors.New("denied")

// source of one engine and the handoffs of tenant a.
type source struct{}

func (source) EngineStates(context.Context) ([]*operatev1.EngineState, error) {
	return []*operatev1.EngineState{{Engine: "p1", Role: "prefill", Blocks: 64, BlocksFree: 16}}, nil
}

func (source) Admission() *operatev1.Admission {
	return &operatev1.Admission{Waiting: 3, StartingMost: 16}
}

func (source) List(_ context.Context, tenant, status string, limit int) ([]*submitv1.Handoff, error) {
	return []*submitv1.Handoff{{Handoff: "h1", Tenant: tenant, Status: status}}, nil
}

func (source) Get(_ context.Context, tenant, id string) (*submitv1.Handoff, error) {
	return &submitv1.Handoff{Handoff: id, Tenant: tenant, Bytes: 1 << 40, Spans: []*submitv1.PhaseSpan{{Step: "prefill"}}}, nil
}

// served is a page whose callers name their tenant in a header; "o" operates.
func served(t *testing.T) *http.ServeMux {
	t.Helper()
	mux := http.NewServeMux()
	tenant := func(r *http.Request) (string, error) {
		if name := r.Header.Get("As"); name != "" {
			return name, nil
		}
		return "", errDenied
	}
	u := UI{Source: source{}, Temporal: "http://temporal", Tenant: tenant,
		Operator: func(r *http.Request) error {
			if r.Header.Get("As") == "o" {
				return nil
			}
			return errDenied
		},
		Refuse: func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusForbidden) }}
	u.Register(mux)
	return mux
}

func get(mux http.Handler, path, as string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("As", as)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func TestThePageIsWholeAndRunsNothingButItsOwn(t *testing.T) {
	mux := served(t)
	for _, path := range Pages {
		w := get(mux, path, "")
		if path == "/ui" {
			if w.Code != http.StatusMovedPermanently {
				t.Errorf("%s: %d", path, w.Code)
			}
			continue
		}
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Security-Policy"), "script-src 'self'") {
			t.Errorf("%s: %d, %v", path, w.Code, w.Header())
		}
	}
	text := get(mux, "/ui/", "").Body.String()
	if inline := regexp.MustCompile(`<script>|<style>| style=| on[a-z]+=|https?://`).FindString(text); inline != "" {
		t.Errorf("the page has %q, which its policy forbids", inline)
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if _, err := fs.Stat(files, "page/"+m[1]); err != nil && m[1] != "data:," {
			t.Errorf("the page wants %s: %v", m[1], err)
		}
	}
	script := get(mux, "/ui/app.js", "").Body.String()
	if strings.Contains(script, "innerHTML") || strings.Contains(script, "eval(") {
		t.Error("the script sets HTML or evaluates text")
	}
	for _, m := range regexp.MustCompile(`\$\("([a-z-]+)"\)`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(text, `id="`+m[1]+`"`) {
			t.Errorf("the script wants #%s, which the page has not got", m[1])
		}
	}
}

func TestWhatThePageAsksForIsTheCallers(t *testing.T) {
	mux := served(t)
	for _, path := range []string{"/ui/api/fleet", "/ui/api/handoffs", "/ui/api/handoffs/h1"} {
		if w := get(mux, path, ""); w.Code != http.StatusForbidden {
			t.Errorf("%s without a caller: %d", path, w.Code)
		}
	}
	if w := get(mux, "/ui/api/fleet", "a"); w.Code != http.StatusForbidden {
		t.Errorf("the fleet was shown to a tenant: %d", w.Code)
	}
	var list struct {
		Answer struct {
			Handoffs []struct{ Handoff, Tenant, Status string }
		}
	}
	if err := json.Unmarshal(get(mux, "/ui/api/handoffs?status=running", "a").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if h := list.Answer.Handoffs; len(h) != 1 || h[0].Tenant != "a" || h[0].Status != "running" {
		t.Errorf("%+v", h)
	}
	var one struct {
		Temporal string
		Answer   struct{ Handoff, Tenant, Bytes string }
	}
	if err := json.Unmarshal(get(mux, "/ui/api/handoffs/h7", "b").Body.Bytes(), &one); err != nil {
		t.Fatal(err)
	}
	if one.Answer.Handoff != "h7" || one.Answer.Tenant != "b" || one.Answer.Bytes != "1099511627776" || one.Temporal != "http://temporal" {
		t.Errorf("%+v", one)
	}
	var fleet struct {
		Answer struct{ Engines []map[string]any }
	}
	if err := json.Unmarshal(get(mux, "/ui/api/fleet", "o").Body.Bytes(), &fleet); err != nil {
		t.Fatal(err)
	}
	// Zeroes are told: the page would show "undefined waiting" without.
	if e := fleet.Answer.Engines; len(e) != 1 || e[0]["engine"] != "p1" || e[0]["blocks_free"] != 16.0 || e[0]["waiting"] != 0.0 {
		t.Errorf("%+v", e)
	}
}
