package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
)

const (
	surfaceResponse = "http-response"
	responsePrefix  = "resp_"
	// lookFor is how long a look at a response gathers what is there.
	lookFor = 250 * time.Millisecond
)

// Statuses of a response.
const (
	responseRunning    = "in_progress"
	responseCompleted  = "completed"
	responseIncomplete = "incomplete"
	responseFailed     = "failed"
	responseCancelled  = "cancelled"
)

// createResponse answers in OpenAI's newer shape: at once, with the answer to be
// asked for later, when background is set.
func (g *Gateway) createResponse(w http.ResponseWriter, r *http.Request) {
	clock := g.metrics.start(surfaceResponse)
	ctx, cancel := g.live(r.Context())
	defer cancel()
	a, f, done, err := g.submit(ctx, kindResponse, w, r)
	if err != nil {
		refused := asRefusal(err)
		clock.end(refused.Code(), nil)
		refused.write(w, "")
		return
	}
	w.Header().Set(headerHandoff, f.Handoff())
	b := newResponse(f.Handoff(), a.model, time.Now().Unix(), a.background)
	s := &responseStream{w: w, out: newSender(w), f: f, clock: clock, b: b, after: -1}
	if a.background && a.stream {
		own, err := g.Front.Attach(ctx, a.tenant, f.Handoff(), orchestrator.From{})
		if err == nil {
			s.f, b.CreatedAt = own, cmp.Or(own.Created, b.CreatedAt)
			defer own.Close()
		}
		g.unseen.hold(g.stopping, a.tenant+"/"+f.Handoff(), f, done)
		if err != nil {
			refused := asRefusal(err)
			clock.end(refused.Code(), nil)
			refused.write(w, f.Handoff())
			return
		}
		last, left := s.run(ctx, true)
		g.account(surfaceResponse, clock, r, f.Handoff(), last, left)
		return
	}
	if a.background {
		g.unseen.hold(g.stopping, a.tenant+"/"+f.Handoff(), f, done)
		clock.end(outcomeOK, nil)
		writeJSON(w, b)
		return
	}
	defer done()
	defer f.Close()
	if a.stream {
		last, left := s.run(ctx, false)
		g.account(surfaceResponse, clock, r, f.Handoff(), last, left)
		return
	}
	e, left := b.gather(ctx, f)
	if e.Err != nil && !left && b.text.Len() == 0 {
		asRefusal(e.Err).write(w, f.Handoff())
	} else if !left {
		writeJSON(w, b.end(e))
	}
	g.account(surfaceResponse, clock, r, f.Handoff(), e, left)
}

// getResponse tells what there is of a response by now, or streams it.
func (g *Gateway) getResponse(w http.ResponseWriter, r *http.Request) {
	stream, after, err := streamsResponse(r)
	if err != nil {
		asRefusal(err).write(w, "")
		return
	}
	if stream {
		g.followResponse(w, r, after)
		return
	}
	b, err := g.look(r)
	if err != nil {
		asRefusal(err).write(w, "")
		return
	}
	writeJSON(w, b)
}

// look gathers what a response has by now. A response that goes on is followed
// from here too: the gateway that took it may be no more.
func (g *Gateway) look(r *http.Request) (*response, error) {
	id, f, err := g.responseOf(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookFor)
	defer cancel()
	b := newResponse(id, f.Model, f.Created, true)
	e, _ := b.gather(ctx, f)
	if ctx.Err() != nil {
		tenant, _ := named(r.Context(), r.Header.Get(headerTenant), id)
		g.unseen.hold(g.stopping, tenant+"/"+id, f, func() {})
		return b.end(orchestrator.Event{}), nil
	}
	f.Close()
	if handoff.CodeOf(errOrNil(e.Err)) == handoff.CodeGone {
		return nil, e.Err
	}
	return b.end(e), nil
}

// responseOf finds a response of a caller's own tenant; its name is its handoff's.
func (g *Gateway) responseOf(r *http.Request) (id string, f orchestrator.Attached, err error) {
	id, ok := strings.CutPrefix(r.PathValue("id"), responsePrefix)
	if !ok {
		return "", f, &refusal{cause: handoff.Errorf(handoff.CodeInvalid, "a response's id begins with %s", responsePrefix), status: http.StatusNotFound}
	}
	if f, err = g.attachedFrom(r, id, orchestrator.From{}); handoff.CodeOf(err) == handoff.CodeGone {
		return "", f, &refusal{cause: asRefusal(err).cause, status: http.StatusNotFound}
	}
	return id, f, err
}

func (g *Gateway) cancelResponse(w http.ResponseWriter, r *http.Request) {
	b, err := g.look(r)
	if err == nil && b.Status == responseRunning {
		id := strings.TrimPrefix(b.ID, responsePrefix)
		tenant, _ := named(r.Context(), r.Header.Get(headerTenant), id)
		if _, err = g.Front.Cancel(r.Context(), tenant, id); err == nil {
			b.Status = responseCancelled
		}
	}
	if err != nil {
		asRefusal(err).write(w, "")
		return
	}
	writeJSON(w, b)
}

// response is OpenAI's object.
type response struct {
	ID         string           `json:"id"`
	Object     string           `json:"object"`
	CreatedAt  int64            `json:"created_at"`
	Status     string           `json:"status"`
	Background bool             `json:"background"`
	Model      string           `json:"model"`
	Error      *responseError   `json:"error"`
	Incomplete *incomplete      `json:"incomplete_details"`
	Output     []responseOutput `json:"output"`
	Usage      *responseUsage   `json:"usage"`

	Instructions *string           `json:"instructions"`
	Metadata     map[string]string `json:"metadata"`
	Parallel     bool              `json:"parallel_tool_calls"`
	ToolChoice   string            `json:"tool_choice"`
	Tools        []json.RawMessage `json:"tools"`

	text strings.Builder
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseOutput struct {
	Type    string         `json:"type"`
	ID      string         `json:"id"`
	Status  string         `json:"status"`
	Role    string         `json:"role"`
	Content []responseText `json:"content"`
}

type responseText struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"`
}

type responseUsage struct {
	Input        uint32 `json:"input_tokens"`
	InputDetails struct {
		Cached uint32 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        uint32 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning uint32 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total uint32 `json:"total_tokens"`
}

func newResponse(id, model string, created int64, background bool) *response {
	return &response{ID: responsePrefix + id, Object: "response", CreatedAt: created, Status: responseRunning, Background: background, Model: model,
		Output: []responseOutput{}, Metadata: map[string]string{}, ToolChoice: "auto", Tools: []json.RawMessage{}}
}

// gather reads on until the end, or until ctx ends.
func (b *response) gather(ctx context.Context, f orchestrator.Follower) (last orchestrator.Event, left bool) {
	for {
		e, left := next(ctx, f)
		if left || ctx.Err() != nil && e.Err != nil {
			return e, left
		}
		b.text.WriteString(e.Text)
		if e.Terminal() {
			return e, false
		}
	}
}

// end fills in what came of it; a zero event is a response that goes on.
func (b *response) end(e orchestrator.Event) *response {
	switch {
	case handoff.CodeOf(errOrNil(e.Err)) == handoff.CodeCancelled:
		b.Status = responseCancelled
	case e.Err != nil:
		b.Status, b.Error = responseFailed, &responseError{asRefusal(e.Err).Code(), e.Err.Detail}
	case e.Finish == "length":
		b.Status, b.Incomplete = responseIncomplete, &incomplete{"max_output_tokens"}
	case e.Finish != "":
		b.Status = responseCompleted
	}
	if e.Finish != "" {
		u := &responseUsage{Input: e.Usage.Prompt, Output: e.Usage.Completion, Total: e.Usage.Prompt + e.Usage.Completion}
		u.InputDetails.Cached = e.Usage.Cached
		b.Usage = u
	}
	if b.text.Len() > 0 {
		b.Output = []responseOutput{b.message(b.Status, []responseText{outputText(b.text.String())})}
	}
	return b
}

// errOrNil is a typed nil made an untyped one.
func errOrNil(e *handoff.Error) error {
	if e == nil {
		return nil
	}
	return e
}
