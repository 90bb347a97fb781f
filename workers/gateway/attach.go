package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
)

const surfaceAttach = "attach"

// readComeback reads whether the answer is to be kept, and where a client that
// comes back stopped. A client that says so has an answer that was kept.
func (a *ask) readComeback(h http.Header) (err error) {
	switch v := h.Get(headerJournal); v {
	case "", "off":
	case "on":
		a.journal = true
	default:
		return refuse(headerJournal, "%s is on or off", headerJournal)
	}
	if a.resume = h.Get(headerResume); a.resume != "" && a.resume != steps.ResumeReplay {
		return refuse(headerResume, "%s is %s or absent", headerResume, steps.ResumeReplay)
	}
	a.journal = a.journal || a.resume != ""
	if last := h.Get(headerLast); last != "" {
		if a.kind == kindResponse {
			return refuse(headerLast, "a response goes on by GET /v1/responses/ID?stream=true&starting_after=N")
		}
		if a.key == "" {
			return refuse(headerLast, "a request comes back by its %s", headerKey)
		}
		a.journal = true
		a.from, err = parsePlace(last)
	}
	return err
}

// parsePlace reads the name of a place in a stream: epoch-position.
func parsePlace(text string) (orchestrator.From, error) {
	e, p, _ := strings.Cut(text, "-")
	epoch, bad := strconv.ParseUint(e, 10, 32)
	position, worse := strconv.ParseUint(p, 10, 32)
	if bad != nil || worse != nil || epoch == 0 {
		return orchestrator.From{}, refuse(headerLast, "%s is the id of an event of this stream, such as 1-57", headerLast)
	}
	return orchestrator.From{Epoch: handoff.Epoch(epoch), Position: uint32(position)}, nil
}

// attach streams a handoff that was submitted before, in the shape in which it
// was asked for.
func (g *Gateway) attach(w http.ResponseWriter, r *http.Request) {
	clock := g.metrics.start(surfaceAttach)
	ctx, cancel := g.live(r.Context())
	defer cancel()
	f, err := g.attached(r, r.PathValue("id"))
	if err != nil {
		refused := asRefusal(err)
		clock.end(refused.Code(), nil)
		refused.write(w, "")
		return
	}
	defer f.Close()
	w.Header().Set(headerHandoff, f.Handoff())
	kind := kindText
	if f.Kind == kindChat {
		kind = kindChat
	}
	a := &answer{w: w, out: newSender(w), f: f, clock: clock, created: f.Created,
		ask: &ask{kind: kind, model: f.Model, usage: r.URL.Query().Get("include_usage") == "true", journal: true}}
	last, left := a.streamed(ctx)
	g.account(surfaceAttach, clock, r, f.Handoff(), last, left)
}

// attached finds the handoff of a caller's own tenant, to go on where the caller
// says that it stopped.
func (g *Gateway) attached(r *http.Request, id string) (f orchestrator.Attached, err error) {
	var from orchestrator.From
	if last := r.Header.Get(headerLast); last != "" {
		if from, err = parsePlace(last); err != nil {
			return f, err
		}
	}
	return g.attachedFrom(r, id, from)
}

func (g *Gateway) attachedFrom(r *http.Request, id string, from orchestrator.From) (f orchestrator.Attached, err error) {
	tenant, err := named(r.Context(), r.Header.Get(headerTenant), id)
	if err != nil {
		return f, err
	}
	if f, err = g.Front.Attach(r.Context(), tenant, id, from); err == nil && f.Created == 0 {
		f.Created = time.Now().Unix()
	}
	return f, err
}

// Attach streams a handoff that was submitted before.
func (s *submitServer) Attach(r *submitv1.AttachRequest, stream grpc.ServerStreamingServer[submitv1.SubmitEvent]) error {
	clock := s.g.metrics.start(surfaceAttach)
	ctx, cancel := s.g.live(stream.Context())
	defer cancel()
	tenant, err := named(ctx, r.GetTenant(), r.GetHandoff())
	if err == nil && access.From(ctx).May(access.RoleOperator) && !access.From(ctx).Believed {
		err = handoff.Errorf(handoff.CodeDenied, "an operator reads nobody's answers")
	}
	if err != nil {
		clock.end(asRefusal(err).Code(), nil)
		return err
	}
	f, err := s.g.Front.Attach(ctx, tenant, r.GetHandoff(), orchestrator.From{Position: r.GetFrom(), Epoch: handoff.Epoch(r.GetEpoch())})
	if err != nil {
		clock.end(asRefusal(err).Code(), nil)
		return err
	}
	defer f.Close()
	return relayCounted(ctx, f, stream, clock)
}
