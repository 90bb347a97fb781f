package orchestrator

import (
	"context"
	"errors"
	"io"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// Peer follows streams that other gateways read.
type Peer interface {
	// Follow reads the stream from its first token on. CodeUnavailable when the
	// gateway does not answer, CodeGone when it no longer holds the stream.
	Follow(ctx context.Context, address, tenant, id string, each func(Event) error) error
}

// relay makes s a copy of the stream that owner reads: one handoff, one reader.
func (o *Orchestrator) relay(_ context.Context, s *stream, in steps.Input, owner, outcome string) error {
	peer, ok := o.cfg.Remote.(Peer)
	if !ok || owner == "" {
		return handoff.Errorf(handoff.CodeGone, "the handoff of this key is %s; its stream is not held", outcome)
	}
	if owner == o.cfg.Process {
		return handoff.Errorf(handoff.CodeGone, "the handoff of this key is %s; an earlier life of this gateway read it", outcome)
	}
	s.mu.Lock()
	s.joined = true
	s.mu.Unlock()
	o.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, in.Deadline+in.Decode)
		defer cancel()
		s.mu.Lock()
		s.abandoned = cancel // the owner sees its follower leave
		s.mu.Unlock()
		err := peer.Follow(ctx, owner, in.Tenant, in.ID, func(e Event) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.append(e)
			return nil
		})
		if err != nil && !errors.Is(err, io.EOF) {
			s.fail(&handoff.Error{Code: handoff.CodeOf(err), Detail: "the gateway that reads this handoff: " + err.Error()})
		}
	})
	return nil
}

func (s *stream) relayed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined
}

// Follow serves another gateway that holds a client of a handoff read here.
func (o *Orchestrator) Follow(_ context.Context, tenant, id string) (Follower, error) {
	s := o.hub.find(tenant, id)
	if s == nil || s.relayed() {
		return nil, handoff.Errorf(handoff.CodeGone, "no stream of %s is held here", id)
	}
	return s.follow(true), nil
}
