package session

import (
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/fence"
)

var done = &transferv1.DaemonMessage_Done{Done: &transferv1.Done{}}

// handle performs one request of the attached engine.
func (s *session) handle(m *transferv1.EngineMessage) (*transferv1.DaemonMessage, error) {
	switch body := m.GetBody().(type) {
	case *transferv1.EngineMessage_OpenTarget:
		return s.openTarget(body.OpenTarget)
	case *transferv1.EngineMessage_OpenSource:
		return s.openSource(body.OpenSource)
	case *transferv1.EngineMessage_Announce:
		return s.answer(body.Announce.GetAttempt(), func(a handoff.Attempt) error { return s.announce(a, body.Announce) })
	case *transferv1.EngineMessage_Seal:
		return s.answer(body.Seal.GetAttempt(), s.seal)
	case *transferv1.EngineMessage_CloseSource:
		return s.answer(body.CloseSource.GetAttempt(), func(a handoff.Attempt) error {
			delete(s.failures, a)
			return s.core().CloseSource(s.engine, a, handoff.ParseCode(body.CloseSource.GetCode()))
		})
	case *transferv1.EngineMessage_FinishTarget:
		return s.answer(body.FinishTarget.GetAttempt(), func(a handoff.Attempt) error { return s.core().FinishTarget(s.engine, a) })
	case *transferv1.EngineMessage_Freed:
		return s.answer(body.Freed.GetAttempt(), func(a handoff.Attempt) error { return s.freed(a, body.Freed.GetSource()) })
	}
	return nil, handoff.Errorf(handoff.CodeInvalid, "request %d has no body that is known here", m.GetId())
}

func (s *session) core() *fence.Core { return s.server.cfg.Core }

func (s *session) answer(m *transferv1.Attempt, do func(handoff.Attempt) error) (*transferv1.DaemonMessage, error) {
	a, err := rpc.FromAttempt(m)
	if err != nil {
		return nil, err
	}
	if err := do(a); err != nil {
		return nil, err
	}
	return &transferv1.DaemonMessage{Body: done}, nil
}

func (s *session) openTarget(m *transferv1.OpenTarget) (*transferv1.DaemonMessage, error) {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return nil, err
	}
	shape, err := rpc.FromShape(m.GetShape())
	if err != nil {
		return nil, err
	}
	token, state, err := s.core().OpenTarget(s.engine, fence.TargetSpec{Plan: plan, Shape: shape, Offsets: m.GetOffsets(),
		Slot: m.GetFlagSlot(), Lease: time.Duration(m.GetLeaseMs()) * time.Millisecond, Held: m.GetHeld()})
	if err != nil {
		return nil, err
	}
	return &transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_TargetOpened{TargetOpened: &transferv1.TargetOpened{
		Token: rpc.Token(token), State: rpc.TargetState(state)}}}, nil
}

func (s *session) openSource(m *transferv1.OpenSource) (*transferv1.DaemonMessage, error) {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return nil, err
	}
	shape, err := rpc.FromShape(m.GetShape())
	if err != nil {
		return nil, err
	}
	var tenant handoff.Digest
	if len(m.GetTenant()) > 0 {
		if tenant, err = rpc.FromDigest("tenant", m.GetTenant()); err != nil {
			return nil, err
		}
	}
	g, err := s.core().OpenSource(s.engine, fence.SourceSpec{Plan: plan, Shape: shape, Offsets: m.GetOffsets(), Blocks: m.GetBlocks(),
		Lease: time.Duration(m.GetLeaseMs()) * time.Millisecond, Trace: m.GetTrace(), Tenant: tenant})
	if err != nil {
		return nil, err
	}
	return &transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_SourceOpened{SourceOpened: &transferv1.SourceOpened{
		Capability: g.Capability, Grant: uint64(g.Grant), State: rpc.SourceState(g.State)}}}, nil
}

// announce keeps the first failure for Seal: a source whose announcements went
// wrong is never sealed.
func (s *session) announce(a handoff.Attempt, m *transferv1.Announce) error {
	if err := s.failures[a]; err != nil {
		return err
	}
	err := s.core().Announce(s.engine, a, m.GetPieces(), m.GetDigests())
	if err == nil {
		return nil
	}
	if len(s.failures) >= handoff.MaxSources {
		s.hangUp() // an engine that announces nothing but nonsense
	}
	s.failures[a] = err
	return err
}

func (s *session) seal(a handoff.Attempt) error {
	if err := s.failures[a]; err != nil {
		return err
	}
	return s.core().Seal(s.engine, a)
}

func (s *session) freed(a handoff.Attempt, source bool) error {
	if source {
		delete(s.failures, a)
		return s.core().FreedSource(s.engine, a)
	}
	return s.core().FreedTarget(s.engine, a)
}
