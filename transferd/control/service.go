// Package control is the daemon's gRPC side, which orchestrators speak to. It
// translates; what may happen is the fence's to say. Every operation is safe to
// repeat.
package control

import (
	"context"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/pull"
	"github.com/surehand/surehand/transferd/trace"
)

const (
	// MaxRenewals bounds the attempts of one Renew.
	MaxRenewals = 4096
	// progressEvery is how often a running pull tells how far it is.
	progressEvery = 100 * time.Millisecond
	// drainTimeout bounds a Drain that has no deadline of its own.
	drainTimeout = 30 * time.Second
)

// Service implements transferv1.TransferServer.
type Service struct {
	transferv1.UnimplementedTransferServer
	Core        *fence.Core
	Puller      *pull.Puller
	Trace       *trace.Hub
	PeerAddress string
}

// Pull starts or joins the pull of a target and tells of it until it ends.
func (s *Service) Pull(m *transferv1.PullRequest, stream transferv1.Transfer_PullServer) error {
	plan, token, err := planAndToken(m.GetPlan(), m.GetToken())
	if err != nil {
		return rpc.Status(err)
	}
	run, err := s.Puller.Pull(pull.Spec{Plan: plan, Token: token, Require: m.GetRequire(), Unchecked: m.GetUnchecked(), SourceAddress: m.GetSourceAddress(), Capability: m.GetCapability(),
		Trace: tracing.Text(stream.Context()), ProgressDeadline: min(time.Duration(m.GetProgressDeadlineMs())*time.Millisecond, handoff.LeaseMax)})
	if err != nil {
		return rpc.Status(err)
	}
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-run.Done():
			return s.pulled(run, stream)
		case <-ticker.C:
			p := run.Progress()
			if err := stream.Send(&transferv1.PullProgress{State: rpc.TargetState(p.State), PiecesLanded: p.Pieces, Pieces: p.Total, BytesLanded: p.Bytes, Lane: p.Lane}); err != nil {
				return rpc.Status(handoff.Errorf(handoff.CodeUnavailable, "%s", err))
			}
		case <-stream.Context().Done(): // the pull goes on; a repeat joins it
			return rpc.Status(handoff.Errorf(handoff.CodeUnavailable, "%s", stream.Context().Err()))
		}
	}
}

func (s *Service) pulled(run *pull.Run, stream transferv1.Transfer_PullServer) error {
	r, err := run.Result()
	if err != nil {
		return rpc.Status(err)
	}
	err = stream.Send(&transferv1.PullProgress{State: transferv1.TargetState_TARGET_STATE_VALIDATED, PiecesLanded: r.Pieces, Pieces: r.Pieces,
		BytesLanded: r.Bytes, Done: true, Lane: r.Lane, ManifestDigest: r.Manifest[:], WireMicros: r.WireMicros, ScatterMicros: r.ScatterMicros, RepulledPieces: r.Repulled})
	if err != nil {
		return rpc.Status(handoff.Errorf(handoff.CodeUnavailable, "%s", err))
	}
	return nil
}

func planAndToken(p *transferv1.Plan, t *transferv1.Token) (handoff.Plan, handoff.Token, error) {
	plan, err := rpc.FromPlan(p)
	if err != nil {
		return plan, handoff.Token{}, err
	}
	token, err := rpc.FromToken(t)
	return plan, token, err
}

func lease(ms int64) time.Duration {
	return min(max(time.Duration(ms), 0), handoff.LeaseMax/time.Millisecond) * time.Millisecond
}

// Commit makes a validated target visible to its engine, once.
func (s *Service) Commit(_ context.Context, m *transferv1.CommitRequest) (*transferv1.TargetAnswer, error) {
	plan, token, err := planAndToken(m.GetPlan(), m.GetToken())
	if err != nil {
		return nil, rpc.Status(err)
	}
	ans, err := s.Core.Commit(plan, token, lease(m.GetLeaseMs()))
	if err != nil {
		return nil, rpc.Status(err)
	}
	return &transferv1.TargetAnswer{State: rpc.TargetState(ans.State), Token: rpc.Token(ans.Token)}, nil
}

// Undo closes an uncommitted attempt.
func (s *Service) Undo(_ context.Context, m *transferv1.CloseRequest) (*transferv1.CloseAnswer, error) {
	return closing(m, s.Core.Undo)
}

// Release ends an attempt whatever its state.
func (s *Service) Release(_ context.Context, m *transferv1.CloseRequest) (*transferv1.CloseAnswer, error) {
	return closing(m, s.Core.Release)
}

// Revoke is Undo, said by the side that holds P.
func (s *Service) Revoke(_ context.Context, m *transferv1.CloseRequest) (*transferv1.CloseAnswer, error) {
	return closing(m, s.Core.Undo)
}

func closing(m *transferv1.CloseRequest, do func(handoff.Plan, fence.Sides) (fence.Closing, error)) (*transferv1.CloseAnswer, error) {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return nil, rpc.Status(err)
	}
	out, err := do(plan, fence.Sides{Target: m.GetTarget(), Source: m.GetSource()})
	if err != nil {
		return nil, rpc.Status(err)
	}
	return closeAnswer(out), nil
}

func closeAnswer(c fence.Closing) *transferv1.CloseAnswer {
	m := &transferv1.CloseAnswer{Target: rpc.TargetState(c.Target), Source: rpc.SourceState(c.Source), SourceValidated: c.Validated, Drained: c.Drained}
	if c.Token.Generation != 0 {
		m.Token = rpc.Token(c.Token)
	}
	return m
}

// Drain answers once nothing can touch the attempt's memory any more.
func (s *Service) Drain(ctx context.Context, m *transferv1.DrainRequest) (*transferv1.CloseAnswer, error) {
	plan, err := rpc.FromPlan(m.GetPlan())
	if err != nil {
		return nil, rpc.Status(err)
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	out, err := s.Core.AwaitDrained(ctx, plan, fence.Sides{Target: m.GetTarget(), Source: m.GetSource()})
	if err != nil {
		return nil, rpc.Status(err)
	}
	return closeAnswer(out), nil
}

// Renew prolongs leases.
func (s *Service) Renew(_ context.Context, m *transferv1.RenewRequest) (*transferv1.RenewAnswer, error) {
	if n := len(m.GetTargets()) + len(m.GetSources()); n > MaxRenewals {
		return nil, rpc.Status(handoff.Errorf(handoff.CodeTooLarge, "%d attempts, limit %d", n, MaxRenewals))
	}
	targets, err := rpc.FromAttempts(m.GetTargets())
	if err != nil {
		return nil, rpc.Status(err)
	}
	sources, err := rpc.FromAttempts(m.GetSources())
	if err != nil {
		return nil, rpc.Status(err)
	}
	lost, err := s.Core.Renew(targets, sources, lease(m.GetLeaseMs()), m.GetReaderNumber())
	if err != nil {
		return nil, rpc.Status(err)
	}
	return &transferv1.RenewAnswer{Lost: rpc.Attempts(lost)}, nil
}

// Watch streams trace events until the caller leaves, or falls behind.
func (s *Service) Watch(_ *transferv1.WatchRequest, stream transferv1.Transfer_WatchServer) error {
	events, leave := s.Trace.Subscribe()
	defer leave()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return rpc.Status(handoff.Errorf(handoff.CodeCapacity, "the watcher fell behind, or too many watch"))
			}
			if err := stream.Send(e); err != nil {
				return rpc.Status(handoff.Errorf(handoff.CodeUnavailable, "%s", err))
			}
		case <-stream.Context().Done():
			return rpc.Status(handoff.Errorf(handoff.CodeUnavailable, "%s", stream.Context().Err()))
		}
	}
}
