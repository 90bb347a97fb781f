package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/tracing"
)

const (
	grpcPing        = 30 * time.Second
	grpcPingTimeout = 10 * time.Second
	grpcPingLeast   = 10 * time.Second // of a client; more often is refused
)

// grpcServer registers both services, health and reflection.
func (g *Gateway) grpcServer(secure *tls.Config) (*grpc.Server, *health.Server) {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxBodyBytes), grpc.MaxHeaderListSize(MaxHeaderBytes), grpc.MaxConcurrentStreams(MaxStreams),
		grpc.ConnectionTimeout(headerTimeout), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: grpcPing, Timeout: grpcPingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcPingLeast, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(g.unary),
		grpc.StreamInterceptor(g.streaming),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := grpc.NewServer(append(options, tracing.ServerOptions()...)...)
	submitv1.RegisterSubmitServer(s, &submitServer{g: g})
	if g.Reader != nil {
		submitv1.RegisterReaderServer(s, &readerServer{g: g})
	}
	if g.Operate != nil {
		operatev1.RegisterOperatorServer(s, &operatorServer{g: g})
	}
	h := health.NewServer()
	h.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING) // until Ready said so
	grpc_health_v1.RegisterHealthServer(s, h)
	reflection.Register(s)
	return s, h
}

// unary gives every call an end, and every error its code.
func (g *Gateway) unary(ctx context.Context, req any, call *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, err := g.identify(ctx, call.FullMethod)
	if err != nil {
		return nil, typed(err)
	}
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, unaryTimeout)
		defer cancel()
	}
	answer, err := handle(ctx, req)
	return answer, typed(err)
}

// typed carries a refusal as a status with its code in the details.
func typed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return status.FromContextError(context.Canceled).Err()
	case errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	if _, is := status.FromError(err); is {
		return err
	}
	r := asRefusal(err)
	if r.Status() == 401 {
		return rpc.StatusAs(codes.Unauthenticated, r.cause)
	}
	if r.param != "" {
		named := *r.cause
		named.Detail = r.param + ": " + named.Detail
		return rpc.Status(&named)
	}
	return rpc.Status(r.cause)
}

// watchReady keeps the health service in step with Ready until the stop.
func (g *Gateway) watchReady(h *health.Server) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(g.stopping, readyEvery)
		state := grpc_health_v1.HealthCheckResponse_SERVING
		if g.Ready(ctx) != nil {
			state = grpc_health_v1.HealthCheckResponse_NOT_SERVING
		}
		cancel()
		h.SetServingStatus("", state) // without effect once the server drains
		select {
		case <-tick.C:
		case <-g.stopping.Done():
			return
		}
	}
}
