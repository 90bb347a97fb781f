package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"strconv"

	"github.com/surehand/surehand/activities/engine/native"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
)

// Native says that the engines hand over by themselves and are given the
// client's bodies as they are. The gateway then reads of a body only what a
// hand-off needs, and answers with D's bytes.
type Native interface {
	// Enter waits for room at a decode engine of the model, before anything is
	// planned; the caller leaves when the request is over.
	Enter(ctx context.Context, model string) (leave func(), err error)
	// Refusal gives, once, an engine's own words about a request; nil: none.
	Refusal(ref string) *vllm.Failure
}

// forwarded are the headers that travel to P and D. Authorization is the
// client's own only where no key of ours is asked for.
var forwarded = []string{"Traceparent", "Tracestate", "X-Data-Parallel-Rank", "X-Session-Id"}

// raw is one request to native engines.
type raw struct {
	*ask
	path   string
	parsed vllm.Request
	sent   native.Request
}

// passThrough answers one path with what D answers.
func (g *Gateway) passThrough(kind, path string) http.HandlerFunc {
	surface := "http-" + kind
	return func(w http.ResponseWriter, r *http.Request) {
		clock := g.metrics.start(surface)
		ctx, cancel := g.live(r.Context())
		defer cancel()
		q, err := g.readRaw(kind, path, w, r)
		if err != nil {
			refused := asRefusal(err)
			clock.end(refused.Code(), nil)
			refused.write(w, "")
			return
		}
		for try := 0; ; try++ {
			f, done, err := g.enterRaw(ctx, q)
			if err != nil {
				refused := asRefusal(err)
				clock.end(refused.Code(), nil)
				refused.write(w, "")
				return
			}
			again := g.answerRaw(ctx, surface, w, r, q, f, clock, try < requeues)
			f.Close() // cancels the handoff if it is not over and nobody else follows
			done()
			if !again {
				return
			}
		}
	}
}

// requeues is how often a request whose D turned out to be full goes back to
// wait for room. Its handoff is over by then, so another is begun.
const requeues = 3

// answerRaw follows one handoff to its end; again when it found no room and may
// wait once more.
func (g *Gateway) answerRaw(ctx context.Context, surface string, w http.ResponseWriter, r *http.Request, q *raw, f orchestrator.Follower, c *clock, requeue bool) (again bool) {
	e, left := next(ctx, f)
	if requeue && !left && e.Err != nil && e.Err.Code == handoff.CodeCapacity {
		return true
	}
	w.Header().Set(headerHandoff, f.Handoff())
	w.Header().Set(headerJoined, strconv.FormatBool(f.Joined()))
	if !left {
		e, left = g.relayRaw(ctx, w, q, f, c, e)
	}
	g.account(surface, c, r, f.Handoff(), e, left)
	return false
}

// readRaw reads of a request what a hand-off needs.
func (g *Gateway) readRaw(kind, path string, w http.ResponseWriter, r *http.Request) (*raw, error) {
	body, err := readRequest(w, r)
	if err != nil {
		return nil, err
	}
	q := &raw{ask: newAsk(kind), path: path}
	if q.parsed, err = vllm.ParseRequest(path, body); err != nil {
		return nil, err
	}
	q.model, q.stream, q.maxTokens = q.parsed.Model, q.parsed.Stream, q.parsed.MaxTokens
	if err := q.readHeaders(r.Header, access.From(r.Context())); err != nil {
		return nil, err
	}
	if q.journal || q.resume != "" {
		return nil, refuse(headerJournal, "native engines tell bytes, not tokens: their answers are neither kept nor resumed")
	}
	if err := q.checkNames(); err != nil {
		return nil, err
	}
	// A pin is host:port of a listed engine, or its id, which is made of it.
	q.prefill, q.decode = string(native.EngineID(q.prefill)), string(native.EngineID(q.decode))
	q.sent = native.Request{Ref: rand.Text(), Path: path, Header: http.Header{}, Body: body}
	for _, name := range forwarded {
		if v := r.Header.Values(name); len(v) > 0 {
			q.sent.Header[name] = slices.Clone(v)
		}
	}
	if v := r.Header.Get("Authorization"); v != "" && q.by.Believed {
		q.sent.Header.Set("Authorization", v)
	}
	return q, nil
}

// enterRaw waits for room at a D and then begins the handoff.
func (g *Gateway) enterRaw(ctx context.Context, q *raw) (orchestrator.Follower, func(), error) {
	if _, err := g.models.find(ctx, q.model); err != nil {
		return nil, nil, err
	}
	leave, err := g.Native.Enter(ctx, q.model)
	if err != nil {
		return nil, nil, err
	}
	f, done, err := g.admit(ctx, q.model, q.request)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return f, func() { leave(); done() }, nil
}

// request is what the orchestrator takes: the body travels as the prompt.
func (q *raw) request(m orchestrator.Model) (orchestrator.Request, error) {
	if err := q.bounded(len(q.sent.Body), ""); err != nil {
		return orchestrator.Request{}, err
	}
	envelope, err := q.sent.Encode()
	if err != nil {
		return orchestrator.Request{}, err
	}
	most := q.maxTokens
	switch {
	case m.MaxTokens > 0 && most > m.MaxTokens:
		r := refuse("max_tokens", "the model's context is %d tokens, and %d are to be generated", m.MaxTokens, most)
		r.name = "context_length_exceeded"
		return orchestrator.Request{}, r
	case most == 0:
		most = native.DefaultGrowth
	}
	return orchestrator.Request{
		Tenant: q.tenant, Salt: q.by.Salt, Key: q.key, Model: q.model, Prompt: envelope, Tokens: native.Tokens(q.parsed), Once: true, Nameless: true, Sampling: orchestrator.Sampling{MaxTokens: most},
		Deadline: q.deadline, Prefill: q.prefill, Decode: q.decode,
		Body: handoff.Digest(sha256.Sum256(append([]byte("raw\x00"+q.path+"\x00"), q.sent.Body...))),
	}, nil
}

// relayRaw writes D's bytes as they come. The status waits for the first of
// them, so that an error before any token is a status.
func (g *Gateway) relayRaw(ctx context.Context, w http.ResponseWriter, q *raw, f orchestrator.Follower, c *clock, e orchestrator.Event) (last orchestrator.Event, left bool) {
	if e.Err != nil {
		g.refuseRaw(w, q, e.Err, f.Handoff())
		return e, false
	}
	if q.stream {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("X-Accel-Buffering", "no") // proxies that would gather events
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	r := &rawWriter{out: newSender(w), id: f.Handoff(), clock: c}
	return pipe(ctx, f, e, r.write)
}

// rawWriter writes one stream's bytes as D said them.
type rawWriter struct {
	out       *sender
	id        string
	clock     *clock
	delivered uint32
}

// write is called for each event.
func (r *rawWriter) write(e orchestrator.Event) error {
	if e.Tokens > 0 {
		r.clock.piece()
		r.delivered = e.Position + e.Tokens
	}
	text := e.Text
	if e.Err != nil {
		text = "data: " + string(asRefusal(e.Err).body(r.id, &r.delivered)) + "\n\n"
	}
	return r.out.sendString(text)
}

// refuseRaw tells the client what an engine itself said about its request, else
// the typed refusal.
func (g *Gateway) refuseRaw(w http.ResponseWriter, q *raw, cause *handoff.Error, id string) {
	said := g.Native.Refusal(q.sent.Ref)
	if said == nil || len(said.Body) == 0 || cause.Code != handoff.CodeInvalid && cause.Code != handoff.CodeDenied {
		asRefusal(cause).write(w, id)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(said.Status)
	_, _ = w.Write(said.Body) // a client that left is told nothing
}

// errRawOnly refuses what is no raw body.
var errRawOnly = handoff.Errorf(handoff.CodeInvalid, "this gateway serves native engines: ask over HTTP")
