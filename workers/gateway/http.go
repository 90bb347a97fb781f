package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
	"github.com/surehand/surehand/workers/telemetry"
)

// Handler is the HTTP side.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	text, chat := g.completion(kindText), g.completion(kindChat)
	if g.Native != nil {
		text, chat = g.passThrough(kindText, vllm.PathCompletions), g.passThrough(kindChat, vllm.PathChat)
	}
	mux.HandleFunc("POST /v1/completions", text)
	mux.HandleFunc("POST /v1/chat/completions", chat)
	if g.Native == nil {
		mux.HandleFunc("POST /v1/responses", g.createResponse)
		mux.HandleFunc("GET /v1/responses/{id}", g.getResponse)
		mux.HandleFunc("POST /v1/responses/{id}/cancel", g.cancelResponse)
		mux.HandleFunc("GET /v1/handoffs/{id}/events", g.attach)
	}
	mux.HandleFunc("GET /v1/models", g.listModels)
	mux.HandleFunc("GET /v1/models/{model...}", g.getModel)
	mux.Handle("GET /healthz", telemetry.Alive())
	mux.Handle("GET /readyz", telemetry.Ready(g.Ready))
	mux.Handle("GET /metrics", telemetry.Metrics(g.Registry))
	g.page().Register(mux)
	g.codec(mux)
	for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/v1/models", "/healthz", "/readyz", "/metrics"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			(&refusal{cause: handoff.Errorf(handoff.CodeInvalid, "%s does not take %s", path, clip(r.Method)), name: "method_not_allowed", status: http.StatusMethodNotAllowed}).write(w, "")
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		(&refusal{cause: handoff.Errorf(handoff.CodeInvalid, "there is no %s here", clip(r.URL.Path)), name: "not_found", status: http.StatusNotFound}).write(w, "")
	})
	return echo(g.guard(traced(mux)))
}

// echo gives the client its own request id back, on every answer.
func echo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := requestID(r.Header); id != "" {
			w.Header().Set(headerRequest, id)
		}
		next.ServeHTTP(w, r)
	})
}

// completion answers both kinds, streamed or whole.
func (g *Gateway) completion(kind string) http.HandlerFunc {
	surface := "http-" + kind
	return func(w http.ResponseWriter, r *http.Request) {
		clock := g.metrics.start(surface)
		ctx, cancel := g.live(r.Context())
		defer cancel()
		clock.span = tracing.Current(ctx)
		a, f, done, err := g.submit(ctx, kind, w, r)
		if err != nil {
			refused := asRefusal(err)
			clock.end(refused.Code(), nil)
			refused.write(w, "")
			return
		}
		defer done()
		defer f.Close() // cancels the handoff if it is not over and nobody else follows
		w.Header().Set(headerHandoff, f.Handoff())
		w.Header().Set(headerJoined, strconv.FormatBool(f.Joined()))
		answer := &answer{w: w, out: newSender(w), f: f, ask: a, clock: clock, created: time.Now().Unix()}
		write := answer.whole
		if a.stream {
			write = answer.streamed
		}
		last, left := write(ctx)
		g.account(surface, clock, r, f.Handoff(), last, left)
	}
}

// readRequest reads the body, and then leaves the connection to tell of a client
// that goes.
func readRequest(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	// From here on the connection is read only to notice that the client left,
	// which may be long after.
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return body, nil
}

// submit reads the request and begins its handoff.
func (g *Gateway) submit(ctx context.Context, kind string, w http.ResponseWriter, r *http.Request) (*ask, orchestrator.Follower, func(), error) {
	body, err := readRequest(w, r)
	if err != nil {
		return nil, nil, nil, err
	}
	a, err := parse(kind, body)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := a.readHeaders(r.Header, access.From(r.Context())); err != nil {
		return nil, nil, nil, err
	}
	a.journal = a.journal || g.Journal
	a.nameless = kind != kindResponse // whose id its first event tells
	f, done, err := g.begin(ctx, a)
	if err == nil {
		note(ctx, a.tenant, f.Handoff())
	}
	return a, f, done, err
}

// account logs and counts how a request ended. Ids and codes only.
func (g *Gateway) account(surface string, c *clock, r *http.Request, id string, last orchestrator.Event, left bool) {
	if last.Err == nil {
		c.end(outcomeOK, &last.Usage)
		return
	}
	c.end(last.Err.Code.String(), nil)
	level := slog.LevelWarn
	if left {
		level = slog.LevelInfo
	}
	g.Log.Log(r.Context(), level, "request ended", "surface", surface, "handoff", id,
		"request", requestID(r.Header), "code", last.Err.Code.String(), "detail", last.Err.Detail)
}

// listModels is OpenAI's list.
func (g *Gateway) listModels(w http.ResponseWriter, r *http.Request) {
	known, err := g.modelsFor(r)
	if err != nil {
		asRefusal(err).write(w, "")
		return
	}
	list := struct {
		Object string      `json:"object"`
		Data   []modelBody `json:"data"`
	}{"list", make([]modelBody, 0, len(known))}
	for _, m := range known {
		list.Data = append(list.Data, newModelBody(m))
	}
	writeJSON(w, list)
}

func (g *Gateway) getModel(w http.ResponseWriter, r *http.Request) {
	known, err := g.modelsFor(r)
	if err == nil {
		for _, m := range known {
			if m.Name == r.PathValue("model") {
				writeJSON(w, newModelBody(m))
				return
			}
		}
		_, err = g.models.find(r.Context(), r.PathValue("model"))
	}
	if err == nil { // it came between the two looks
		err = handoff.Errorf(handoff.CodeUnavailable, "the list of models changes just now")
	}
	asRefusal(err).write(w, "")
}

func (g *Gateway) modelsFor(r *http.Request) ([]orchestrator.Model, error) {
	if _, err := access.From(r.Context()).For(r.Header.Get(headerTenant), DefaultTenant); err != nil {
		return nil, err
	}
	return g.models.list(r.Context())
}

type modelBody struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Created  int64  `json:"created"`
	OwnedBy  string `json:"owned_by"`
	Revision string `json:"revision"`
	Context  uint32 `json:"max_model_len"`
}

func newModelBody(m orchestrator.Model) modelBody {
	return modelBody{ID: m.Name, Object: "model", OwnedBy: "surehand", Revision: m.Revision, Context: m.MaxTokens}
}

func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		asRefusal(handoff.Errorf(handoff.CodeInternal, "encode the answer: %s", err)).write(w, "")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // a client that left is told nothing
}
