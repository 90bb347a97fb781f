package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
)

// answer writes one handoff's stream to one HTTP client.
type answer struct {
	w       http.ResponseWriter
	out     *sender
	f       orchestrator.Follower
	ask     *ask
	clock   *clock
	created int64
}

// whole gathers the stream and answers with one object, or with one error.
func (a *answer) whole(ctx context.Context) (last orchestrator.Event, left bool) {
	var text strings.Builder
	for {
		e, left := next(ctx, a.f)
		if left {
			return e, true
		}
		if e.Err != nil {
			asRefusal(e.Err).write(a.w, a.f.Handoff())
			return e, false
		}
		text.WriteString(e.Text)
		if e.Tokens > 0 {
			a.clock.piece()
		}
		if e.Finish != "" {
			a.w.Header().Set("Content-Type", "application/json")
			_, err := a.w.Write(whole(a.ask.kind, a.f.Handoff(), a.ask.model, a.created, text.String(), e.Finish, e.Usage))
			return e, err != nil
		}
	}
}

// streamed writes each event as it comes. The status waits for the first one,
// so that an error before any token is a status.
func (a *answer) streamed(ctx context.Context) (last orchestrator.Event, left bool) {
	e, left := next(ctx, a.f)
	if left {
		return e, true
	}
	if e.Err != nil {
		asRefusal(e.Err).write(a.w, a.f.Handoff())
		return e, false
	}
	streaming(a.w.Header())
	c := newChunk(a.ask.kind, a.f.Handoff(), a.ask.model, a.created, a.ask.usage)
	c.ids = a.ask.journal
	if a.ask.kind == kindChat {
		c.role()
	}
	var delivered uint32
	for {
		a.render(c, e, &delivered)
		if err := a.flush(c); err != nil {
			return orchestrator.Event{Err: handoff.Errorf(handoff.CodeCancelled, "the client left")}, true
		}
		if e.Terminal() {
			return e, false
		}
		if e, left = next(ctx, a.f); left {
			return e, true
		}
	}
}

func streaming(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies that would gather events
}

// render appends what one event says.
func (a *answer) render(c *chunk, e orchestrator.Event, delivered *uint32) {
	if e.Err != nil {
		c.fail(asRefusal(e.Err).body(a.f.Handoff(), delivered))
		return
	}
	if e.Tokens > 0 {
		a.clock.piece()
		*delivered = e.Position + e.Tokens
	}
	if e.Resumed != nil {
		c.resumed(e)
	}
	if e.Text != "" {
		c.id(e)
		c.text(e.Text)
	}
	if e.Finish != "" {
		c.finish(e.Finish, e.Usage)
	}
}

// flush sends what is gathered in one write.
func (a *answer) flush(c *chunk) error {
	if len(c.buf) == 0 {
		return nil
	}
	err := a.out.send(c.buf)
	c.buf = c.buf[:0]
	return err
}
