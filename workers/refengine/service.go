package refengine

import (
	"context"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/workers/refengine/answer"
	"github.com/surehand/surehand/workers/refengine/compute"
)

// service is the gRPC face: it checks what came, asks the engine and types what
// goes back. It keeps nothing.
type service struct {
	enginev1.UnimplementedEngineServer
	e *Engine
}

func (s *service) Describe(context.Context, *enginev1.DescribeRequest) (*enginev1.Description, error) {
	return s.e.Description(), nil
}

func (s *service) Reserve(ctx context.Context, m *enginev1.ReserveRequest) (*enginev1.ReserveAnswer, error) {
	e := s.e
	plan, err := rpc.FromPlan(m.GetPlan())
	if err == nil {
		err = e.compatible(m.GetRevision(), m.GetLayout())
	}
	if err == nil {
		err = e.seated(plan.D, engine.RoleDecode)
	}
	if err != nil {
		return nil, rpc.Status(err)
	}
	r, err := e.room(m)
	if err != nil {
		return nil, rpc.Status(err)
	}
	r.trace = tracing.Text(ctx)
	token, blocks, err := e.reserve(ctx, plan, r)
	if err != nil {
		return nil, rpc.Status(err)
	}
	return &enginev1.ReserveAnswer{Token: rpc.Token(token), Blocks: uint32(blocks)}, nil
}

func (s *service) Prefill(m *enginev1.PrefillRequest, stream enginev1.Engine_PrefillServer) error {
	e := s.e
	plan, err := rpc.FromPlan(m.GetPlan())
	if err == nil {
		err = e.seated(plan.P, engine.RolePrefill)
	}
	if err == nil && m.GetHolder() != string(plan.D.Node) {
		err = handoff.Errorf(handoff.CodeInvalid, "holder %q, the plan's D is at %q", m.GetHolder(), plan.D.Node)
	}
	if err != nil {
		return rpc.Status(err)
	}
	p, err := e.prompt(m)
	if err != nil {
		return rpc.Status(err)
	}
	p.trace = tracing.Text(stream.Context())
	run, err := e.prefill(plan, p)
	if err != nil {
		return rpc.Status(err)
	}
	return rpc.Status(run.run.follow(stream.Context(), stream.Send))
}

func (s *service) Attach(m *enginev1.AttachRequest, stream enginev1.Engine_AttachServer) error {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return rpc.Status(err)
	}
	token, err := rpc.FromToken(m.GetToken())
	if err != nil {
		return rpc.Status(err)
	}
	log, err := s.e.attach(stream.Context(), plan, token)
	if err != nil {
		return rpc.Status(err)
	}
	return rpc.Status(log.Follow(stream.Context(), m.GetFrom(), func(e answer.Event) error { return stream.Send(toEvent(e)) }))
}

func (s *service) Tokenize(_ context.Context, m *enginev1.TokenizeRequest) (*enginev1.TokenizeAnswer, error) {
	prompt, tokens, err := s.e.tokenize(m)
	if err != nil {
		return nil, rpc.Status(err)
	}
	return &enginev1.TokenizeAnswer{Prompt: prompt, Tokens: uint32(tokens)}, nil
}

// tokenize makes the prompt of a chat, or takes one as it is, and counts.
func (e *Engine) tokenize(m *enginev1.TokenizeRequest) (prompt []byte, tokens int, err error) {
	prompt = m.GetPrompt()
	if len(m.GetMessages()) > 0 {
		if prompt, err = e.render(m); err != nil {
			return nil, 0, err
		}
	}
	encoded, err := e.compute.Encode(prompt)
	return prompt, len(encoded), err
}

func (e *Engine) render(m *enginev1.TokenizeRequest) ([]byte, error) {
	chats, ok := e.compute.(compute.Chats)
	switch {
	case !ok:
		return nil, handoff.Errorf(handoff.CodeInvalid, "the model has no chat template")
	case len(m.GetPrompt()) > 0:
		return nil, handoff.Errorf(handoff.CodeInvalid, "a prompt and messages, want one of them")
	case len(m.GetMessages()) > maxMessages:
		return nil, handoff.Errorf(handoff.CodeTooLarge, "%d messages, limit %d", len(m.GetMessages()), maxMessages)
	}
	messages := make([]compute.Message, len(m.GetMessages()))
	for i, turn := range m.GetMessages() {
		messages[i] = compute.Message{Role: turn.GetRole(), Content: turn.GetContent()}
	}
	return chats.Render(messages)
}

func toEvent(e answer.Event) *enginev1.DecodeEvent {
	m := &enginev1.DecodeEvent{Position: e.Position, Text: e.Text, Tokens: e.Tokens, FinishReason: e.Finish}
	if e.Finish != "" {
		m.Counts = &enginev1.Counts{Direct: e.Counts.Direct, Cached: e.Counts.Cached, Recomputed: e.Counts.Recomputed, Completion: e.Counts.Completion}
	}
	return m
}

func (s *service) Cancel(ctx context.Context, m *enginev1.CancelRequest) (*enginev1.CancelAnswer, error) {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return nil, rpc.Status(err)
	}
	known, err := s.e.cancelAttempt(ctx, plan)
	if err != nil {
		return nil, rpc.Status(err)
	}
	return &enginev1.CancelAnswer{Known: known}, nil
}

// attach finds the answer that a token is for.
func (e *Engine) attach(ctx context.Context, plan handoff.Plan, token handoff.Token) (*answer.Log, error) {
	t, done, err := e.attempts.answer(plan)
	if err != nil {
		return nil, err
	}
	log, its := done.log, done.token
	if t != nil {
		select {
		case <-t.reserved.done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		log, its = t.log, t.token
	}
	if its != token {
		return nil, handoff.Errorf(handoff.CodeStaleToken, "%s", token)
	}
	return log, nil
}
