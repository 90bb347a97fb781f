// Package ui is the gateway's own web page: the fleet, its queues, the newest handoffs, and
// one handoff's waterfall. The page is the same for everybody and holds nothing;
// what it shows it asks for, with the caller's key, from the three paths under
// /ui/api, which answer in the shapes of the gRPC APIs.
package ui

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
)

// Prefix of all that is served here.
const Prefix = "/ui/"

// Pages are the paths that hold nothing and are open to everybody.
var Pages = []string{"/ui", "/ui/", "/ui/app.js", "/ui/style.css"}

// Source is where the page's data comes from.
type Source interface {
	EngineStates(ctx context.Context) ([]*operatev1.EngineState, error)
	Admission() *operatev1.Admission
	List(ctx context.Context, tenant, status string, limit int) ([]*submitv1.Handoff, error)
	Get(ctx context.Context, tenant, id string) (*submitv1.Handoff, error)
}

// UI serves the page.
type UI struct {
	Source   Source
	Temporal string // of the namespace in Temporal's own UI, which handoffs link to; empty: no links
	// Tenant of the caller, or a refusal.
	Tenant func(r *http.Request) (string, error)
	// Operator is nil when the caller may see the fleet.
	Operator func(r *http.Request) error
	// Refuse answers with a typed error.
	Refuse func(w http.ResponseWriter, err error)
}

//go:embed page
var files embed.FS

// policy of the page: its own script and style, and no other origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// shown is how many of the newest handoffs the list holds.
const shown = 50

// page is what is embedded.
func page() fs.FS {
	sub, err := fs.Sub(files, "page")
	if err != nil { // the name is wrong, which no build of this package has
		panic(err)
	}
	return sub
}

// Register adds the page's paths.
func (u UI) Register(mux *http.ServeMux) {
	static := http.StripPrefix(Prefix, http.FileServerFS(page()))
	mux.Handle("GET "+Prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		static.ServeHTTP(w, r)
	}))
	mux.Handle("GET /ui", http.RedirectHandler(Prefix, http.StatusMovedPermanently))
	mux.HandleFunc("GET /ui/api/fleet", u.fleet)
	mux.HandleFunc("GET /ui/api/handoffs", u.handoffs)
	mux.HandleFunc("GET /ui/api/handoffs/{id}", u.handoff)
}

func (u UI) fleet(w http.ResponseWriter, r *http.Request) {
	if err := u.Operator(r); err != nil {
		u.Refuse(w, err)
		return
	}
	engines, err := u.Source.EngineStates(r.Context())
	if err != nil {
		u.Refuse(w, err)
		return
	}
	u.answer(w, &operatev1.EnginesAnswer{Engines: engines, Admission: u.Source.Admission()})
}

func (u UI) handoffs(w http.ResponseWriter, r *http.Request) {
	tenant, err := u.Tenant(r)
	if err != nil {
		u.Refuse(w, err)
		return
	}
	list, err := u.Source.List(r.Context(), tenant, r.URL.Query().Get("status"), shown)
	if err != nil {
		u.Refuse(w, err)
		return
	}
	u.answer(w, &submitv1.ListAnswer{Handoffs: list})
}

func (u UI) handoff(w http.ResponseWriter, r *http.Request) {
	tenant, err := u.Tenant(r)
	if err != nil {
		u.Refuse(w, err)
		return
	}
	h, err := u.Source.Get(r.Context(), tenant, r.PathValue("id"))
	if err != nil {
		u.Refuse(w, err)
		return
	}
	u.answer(w, h)
}

// answer is a message as JSON, and where Temporal's own page is.
func (u UI) answer(w http.ResponseWriter, m proto.Message) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err == nil {
		text, err = json.Marshal(map[string]any{"answer": json.RawMessage(text), "temporal": u.Temporal})
	}
	if err != nil {
		u.Refuse(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // a client that left is told nothing
}
