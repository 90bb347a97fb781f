package vllmengine

import (
	"context"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/workers/refengine/answer"
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
	a, err := s.reserve(ctx, m)
	return a, rpc.Status(err)
}

func (s *service) reserve(ctx context.Context, m *enginev1.ReserveRequest) (*enginev1.ReserveAnswer, error) {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err == nil {
		err = s.e.compatible(m.GetRevision(), m.GetLayout())
	}
	if err == nil {
		err = s.e.seated(plan.D, engine.RoleDecode)
	}
	if err == nil && m.GetSampling().GetMaxTokens() == 0 {
		err = handoff.Errorf(handoff.CodeInvalid, "an answer of no tokens")
	}
	if err != nil {
		return nil, err
	}
	c, err := s.e.request(m.GetPlan(), enginev1.Role_ROLE_DECODE, m.GetPrompt(), m.GetSampling(), m.GetTenantSalt(), m.GetLeaseMs())
	if err != nil {
		return nil, err
	}
	c.Stream = true
	t, err := s.e.reserve(ctx, plan, c)
	if err != nil {
		return nil, err
	}
	return &enginev1.ReserveAnswer{Token: rpc.Token(t.token), Blocks: t.blocks}, nil
}

func (s *service) Prefill(m *enginev1.PrefillRequest, stream enginev1.Engine_PrefillServer) error {
	return rpc.Status(s.prefill(m, stream))
}

func (s *service) prefill(m *enginev1.PrefillRequest, stream enginev1.Engine_PrefillServer) error {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err == nil {
		err = s.e.seated(plan.P, engine.RolePrefill)
	}
	if err == nil && m.GetHolder() != string(plan.D.Node) {
		err = handoff.Errorf(handoff.CodeInvalid, "holder %q, the plan's D is at %q", m.GetHolder(), plan.D.Node)
	}
	if err != nil {
		return err
	}
	c, err := s.e.request(m.GetPlan(), enginev1.Role_ROLE_PREFILL, m.GetPrompt(), m.GetSampling(), m.GetTenantSalt(), m.GetLeaseMs())
	if err != nil {
		return err
	}
	c.MaxTokens, c.Stop = 1, nil // D draws the first token again
	got, err := s.e.prefill(stream.Context(), plan, c, func(o opened) error {
		m := &enginev1.PrefillOpened{Capability: o.capability, SourceAddress: o.address, PromptTokens: o.prompt}
		return stream.Send(&enginev1.PrefillEvent{Event: &enginev1.PrefillEvent_Opened{Opened: m}})
	})
	if err != nil {
		return err
	}
	return stream.Send(&enginev1.PrefillEvent{Event: &enginev1.PrefillEvent_Sealed{Sealed: &enginev1.PrefillSealed{
		PromptTokens: got.prompt, CachedTokens: got.cached, ComputeMicros: uint64(got.took.Microseconds())}}})
}

func (s *service) Attach(m *enginev1.AttachRequest, stream enginev1.Engine_AttachServer) error {
	return rpc.Status(s.attach(m, stream))
}

func (s *service) attach(m *enginev1.AttachRequest, stream enginev1.Engine_AttachServer) error {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return err
	}
	token, err := rpc.FromToken(m.GetToken())
	if err != nil {
		return err
	}
	log, err := s.e.answer(stream.Context(), plan, token)
	if err != nil {
		return err
	}
	return log.Follow(stream.Context(), m.GetFrom(), func(e answer.Event) error { return stream.Send(toEvent(e)) })
}

// answer finds the answer that a token is for.
func (e *Engine) answer(ctx context.Context, plan handoff.Plan, token handoff.Token) (*answer.Log, error) {
	t, done, err := e.attempts.answer(plan)
	if err != nil {
		return nil, err
	}
	log, its := done.log, done.token
	if t != nil {
		select {
		case <-t.settled:
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

func toEvent(e answer.Event) *enginev1.DecodeEvent {
	m := &enginev1.DecodeEvent{Position: e.Position, Text: e.Text, Tokens: e.Tokens, FinishReason: e.Finish}
	if e.Finish != "" {
		m.Counts = &enginev1.Counts{Direct: e.Counts.Direct, Cached: e.Counts.Cached, Recomputed: e.Counts.Recomputed, Completion: e.Counts.Completion}
	}
	return m
}

func (s *service) Cancel(_ context.Context, m *enginev1.CancelRequest) (*enginev1.CancelAnswer, error) {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return nil, rpc.Status(err)
	}
	known, err := s.e.cancelAttempt(plan)
	if err != nil {
		return nil, rpc.Status(err)
	}
	return &enginev1.CancelAnswer{Known: known}, nil
}
