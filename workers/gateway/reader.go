package gateway

import (
	"context"

	"google.golang.org/grpc"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
)

// Reader is what workers tell the process that reads a handoff's tokens.
// Both calls are safe to repeat: they answer the present state.
type Reader interface {
	Planned(ctx context.Context, r *submitv1.PlannedRequest) error
	Ended(ctx context.Context, r *submitv1.EndedRequest) error
}

// readerServer is for workers and other gateways of the fleet, never for
// clients: off loopback its callers show a certificate.
type readerServer struct {
	submitv1.UnimplementedReaderServer
	g *Gateway
}

// GiveUp answers rule 5(c). The orchestrator checks that it is the reader that
// history names, process and incarnation.
func (s *readerServer) GiveUp(ctx context.Context, r *submitv1.GiveUpRequest) (*submitv1.GiveUpAnswer, error) {
	a, err := rpc.FromAttempt(r.GetAttempt())
	if err != nil {
		return nil, err
	}
	given, err := s.g.Front.GiveUp(ctx, rpc.FromReader(r.GetReader()), a)
	if err != nil {
		return nil, err
	}
	return &submitv1.GiveUpAnswer{GivenUp: given}, nil
}

func (s *readerServer) Planned(ctx context.Context, r *submitv1.PlannedRequest) (*submitv1.PlannedAnswer, error) {
	if err := s.g.Reader.Planned(ctx, r); err != nil {
		return nil, err
	}
	return &submitv1.PlannedAnswer{}, nil
}

func (s *readerServer) Ended(ctx context.Context, r *submitv1.EndedRequest) (*submitv1.EndedAnswer, error) {
	if err := s.g.Reader.Ended(ctx, r); err != nil {
		return nil, err
	}
	return &submitv1.EndedAnswer{}, nil
}

// Follow relays a live stream to another gateway that holds a client of it.
func (s *readerServer) Follow(r *submitv1.FollowRequest, stream grpc.ServerStreamingServer[submitv1.SubmitEvent]) error {
	ctx, cancel := s.g.live(stream.Context())
	defer cancel()
	for name, id := range map[string]string{"tenant": r.GetTenant(), "handoff": r.GetHandoff()} {
		if err := handoff.ValidateID(name, id); err != nil {
			return err
		}
	}
	f, err := s.g.Front.Follow(ctx, r.GetTenant(), r.GetHandoff())
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = relay(ctx, f, stream, nil)
	return err
}
