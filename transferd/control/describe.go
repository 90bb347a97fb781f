package control

import (
	"context"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

// maxDescribed bounds the attempts of one Description, which must fit a message.
const maxDescribed = 4096

// Describe tells what the daemon holds.
func (s *Service) Describe(_ context.Context, m *transferv1.DescribeRequest) (*transferv1.Description, error) {
	st := s.Core.Stats()
	d := &transferv1.Description{
		Node: string(s.Core.Node()), Incarnation: uint64(s.Core.Incarnation()), PeerAddress: s.PeerAddress,
		TargetsLive: uint32(st.TargetsLive), TargetsQuarantined: uint32(st.TargetsQuarantined),
		SourcesLive: uint32(st.SourcesLive), SourcesQuarantined: uint32(st.SourcesQuarantined),
		CommittedTotal: st.Committed, CommittedBytesTotal: st.CommittedBytes, PulledBytesTotal: st.PulledBytes,
		RegisteredBytes: st.RegisteredBytes, Ready: st.Ready, PinnedBlocks: uint32(st.PinnedBlocks),
	}
	for _, e := range st.Engines {
		d.Engines = append(d.Engines, &transferv1.EngineDescription{Engine: string(e.ID), SegmentBytes: e.Bytes, Attached: true, Memory: e.Kind})
	}
	if m.GetAttempts() {
		s.attempts(d)
	}
	return d, nil
}

func (s *Service) attempts(d *transferv1.Description) {
	targets, sources := s.Core.Records(maxDescribed)
	for _, t := range targets {
		d.Targets = append(d.Targets, &transferv1.TargetDescription{Plan: rpc.Plan(t.Plan), State: rpc.TargetState(t.State),
			Posted: uint32(t.Posted), Blocks: t.Blocks, Freed: t.Freed, Cause: cause(t.Cause)})
	}
	for _, r := range sources {
		d.Sources = append(d.Sources, &transferv1.SourceDescription{Plan: rpc.Plan(r.Plan), State: rpc.SourceState(r.State),
			Posted: uint32(r.Posted), Blocks: r.Blocks, Validated: r.Validated, Freed: r.Freed, Cause: cause(r.Cause)})
	}
}

func cause(c handoff.Code) string {
	if c == handoff.CodeNone {
		return ""
	}
	return c.String()
}
