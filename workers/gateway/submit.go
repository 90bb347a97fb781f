package gateway

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/workers/access"
	"github.com/surehand/surehand/workers/orchestrator"
)

const surfaceGRPC = "grpc"

const (
	statusRunning   = "running"
	statusCancelled = "cancelled"
)

// statuses that List can be asked for; empty is all.
var statuses = []string{"", statusRunning, "completed", "failed", statusCancelled}

type submitServer struct {
	submitv1.UnimplementedSubmitServer
	g *Gateway
}

// Submit streams one handoff. A failure after Accepted is an event and the
// call's status both, so that neither kind of client misses it.
func (s *submitServer) Submit(r *submitv1.SubmitRequest, stream grpc.ServerStreamingServer[submitv1.SubmitEvent]) error {
	clock := s.g.metrics.start(surfaceGRPC)
	ctx, cancel := s.g.live(stream.Context())
	defer cancel()
	f, done, err := s.begin(ctx, r)
	if err != nil {
		clock.end(asRefusal(err).Code(), nil)
		return err
	}
	defer done()
	defer f.Close() // cancels the handoff if it is not over and nobody else follows
	return relayCounted(ctx, f, stream, clock)
}

// relayCounted relays a stream to its end and counts how it ended.
func relayCounted(ctx context.Context, f orchestrator.Follower, stream grpc.ServerStreamingServer[submitv1.SubmitEvent], clock *clock) error {
	last, err := relay(ctx, f, stream, clock)
	if last.Err != nil {
		clock.end(last.Err.Code.String(), nil)
	} else if err == nil {
		clock.end(outcomeOK, &last.Usage)
	}
	return err
}

func (s *submitServer) begin(ctx context.Context, r *submitv1.SubmitRequest) (orchestrator.Follower, func(), error) {
	a, err := fromProto(r)
	if err != nil {
		return nil, nil, err
	}
	if err = a.speakFor(access.From(ctx), r.GetTenant()); err != nil {
		return nil, nil, err
	}
	return s.g.begin(ctx, a)
}

// tenant is whom the caller speaks for.
func tenant(ctx context.Context, claimed string) (string, error) {
	name, err := access.From(ctx).For(claimed, DefaultTenant)
	if err != nil {
		return "", err
	}
	return name, handoff.ValidateID("tenant", name)
}

// fromProto reads a submit as the HTTP side reads a body.
func fromProto(r *submitv1.SubmitRequest) (*ask, error) {
	kind := kindText
	if len(r.GetMessages()) > 0 {
		kind = kindChat
		if r.GetPrompt() != "" {
			return nil, refuse("prompt", "give a prompt or messages, not both")
		}
	}
	a := newAsk(kind)
	a.model, a.prompt, a.maxTokens, a.stop = r.GetModel(), r.GetPrompt(), r.GetMaxTokens(), r.GetStop()
	a.key, a.prefill, a.decode = r.GetIdempotencyKey(), r.GetPrefill(), r.GetDecode()
	a.stream, a.seed, a.journal = true, r.Seed, r.GetJournal()
	a.resume = r.GetResume()
	if r.Temperature != nil {
		a.temperature = r.GetTemperature()
	}
	if r.TopP != nil {
		a.topP = r.GetTopP()
	}
	if ms := r.GetDeadlineMs(); ms < 0 || ms > maxDeadline.Milliseconds() {
		return nil, refuse("deadline_ms", "a deadline is at most %d milliseconds", maxDeadline.Milliseconds())
	}
	a.deadline = time.Duration(r.GetDeadlineMs()) * time.Millisecond
	for i, m := range r.GetMessages() {
		if !slices.Contains(roles, m.GetRole()) {
			return nil, refuse("messages", "message %d has a role that is none of %v", i, roles)
		}
		a.messages = append(a.messages, message{m.GetRole(), m.GetContent()})
	}
	return a, nil
}

// relay sends a follower's events until the last.
func relay(ctx context.Context, f orchestrator.Follower, stream grpc.ServerStreamingServer[submitv1.SubmitEvent], clock *clock) (orchestrator.Event, error) {
	accepted := &submitv1.Accepted{Handoff: f.Handoff(), Joined: f.Joined()}
	if err := stream.Send(&submitv1.SubmitEvent{Event: &submitv1.SubmitEvent_Accepted{Accepted: accepted}}); err != nil {
		return orchestrator.Event{Err: handoff.Errorf(handoff.CodeCancelled, "the client left")}, err
	}
	for {
		e, left := next(ctx, f)
		if left {
			return e, context.Canceled
		}
		if e.Tokens > 0 && clock != nil {
			clock.piece()
		}
		for _, m := range events(e) {
			if err := stream.Send(m); err != nil {
				return orchestrator.Event{Err: handoff.Errorf(handoff.CodeCancelled, "the client left")}, err
			}
		}
		if e.Err != nil {
			return e, e.Err
		}
		if e.Finish != "" {
			return e, nil
		}
	}
}

// events are the messages of one event: the last one may bring text as well.
func events(e orchestrator.Event) []*submitv1.SubmitEvent {
	var out []*submitv1.SubmitEvent
	if e.Err != nil {
		return append(out, &submitv1.SubmitEvent{Event: &submitv1.SubmitEvent_Failed{Failed: rpc.Failure(e.Err)}})
	}
	if r := e.Resumed; r != nil {
		return append(out, &submitv1.SubmitEvent{Event: &submitv1.SubmitEvent_Resumed{Resumed: &submitv1.Resumed{
			FromEpoch: uint32(r.From), ToEpoch: uint32(e.Epoch), Position: r.Position}}})
	}
	if e.Text != "" || e.Tokens > 0 {
		out = append(out, &submitv1.SubmitEvent{Event: &submitv1.SubmitEvent_Delta{
			Delta: &submitv1.Delta{Position: e.Position, Text: e.Text, Tokens: e.Tokens, Epoch: uint32(e.Epoch)}}})
	}
	if e.Finish != "" {
		out = append(out, &submitv1.SubmitEvent{Event: &submitv1.SubmitEvent_Finished{
			Finished: &submitv1.Finished{FinishReason: e.Finish, Position: e.Position + e.Tokens, Usage: &submitv1.Usage{
				PromptTokens: e.Usage.Prompt, CompletionTokens: e.Usage.Completion,
				DirectTokens: e.Usage.Direct, CachedTokens: e.Usage.Cached, RecomputedTokens: e.Usage.Recomputed}}}})
	}
	return out
}

func (s *submitServer) Get(ctx context.Context, r *submitv1.GetRequest) (*submitv1.Handoff, error) {
	tenant, err := named(ctx, r.GetTenant(), r.GetHandoff())
	if err != nil {
		return nil, err
	}
	return s.g.Front.Get(ctx, tenant, r.GetHandoff())
}

// Cancel is safe to repeat: a handoff that is over answers how it ended.
func (s *submitServer) Cancel(ctx context.Context, r *submitv1.CancelRequest) (*submitv1.CancelAnswer, error) {
	tenant, err := named(ctx, r.GetTenant(), r.GetHandoff())
	if err != nil {
		return nil, err
	}
	before, err := s.g.Front.Cancel(ctx, tenant, r.GetHandoff())
	if err != nil {
		return nil, err
	}
	if before {
		return &submitv1.CancelAnswer{BeforeCommit: true, Status: statusCancelled}, nil
	}
	h, err := s.g.Front.Get(ctx, tenant, r.GetHandoff())
	if err != nil {
		return nil, err
	}
	status := h.GetStatus()
	if status == statusRunning {
		status = statusCancelled // its stream is ended; the history just does not say so yet
	}
	return &submitv1.CancelAnswer{Status: status}, nil
}

func (s *submitServer) List(ctx context.Context, r *submitv1.ListRequest) (*submitv1.ListAnswer, error) {
	tenant, err := tenant(ctx, r.GetTenant())
	if handoff.CodeOf(err) == handoff.CodeDenied {
		return nil, handoff.Errorf(handoff.CodeGone, "no handoffs of tenant %q", clip(r.GetTenant()))
	}
	if err != nil {
		return nil, err
	}
	if !slices.Contains(statuses, r.GetStatus()) {
		return nil, refuse("status", "the status is none of %v", statuses[1:])
	}
	limit := int(r.GetLimit())
	if limit == 0 {
		limit = DefaultListed
	}
	if limit > MaxListed {
		return nil, refuse("limit", "at most %d handoffs are listed", MaxListed)
	}
	found, err := s.g.Front.List(ctx, tenant, r.GetStatus(), limit)
	if err != nil {
		return nil, err
	}
	return &submitv1.ListAnswer{Handoffs: found}, nil
}

// named checks who asks about which handoff. Another tenant's is not found: that
// it exists is nobody else's business.
func named(ctx context.Context, claimed, id string) (string, error) {
	if err := handoff.ValidateID("handoff", id); err != nil {
		return "", err
	}
	name, err := tenant(ctx, claimed)
	if handoff.CodeOf(err) == handoff.CodeDenied {
		return "", handoff.Errorf(handoff.CodeGone, "no handoff %s of tenant %s", id, clip(claimed))
	}
	return name, err
}
