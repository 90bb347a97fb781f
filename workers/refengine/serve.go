package refengine

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/tracing"
)

// keepaliveMin is how often a client may ask whether we live.
const keepaliveMin = 5 * time.Second

// Serve answers gRPC until ctx ends or the engine breaks. Then it takes no new
// attempt, gives those that hold memory Grace to end, and ends the rest.
func (e *Engine) Serve(ctx context.Context) error {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxSendMsgSize(maxMessageBytes), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMin, PermitWithoutStream: true}),
	}
	if e.c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(e.c.TLS)))
	}
	server := grpc.NewServer(append(options, tracing.ServerOptions()...)...)
	enginev1.RegisterEngineServer(server, &service{e: e})
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(e.listener) }()
	if e.c.Ready != nil {
		e.c.Ready(e)
	}
	var err error
	select {
	case <-ctx.Done():
		e.windDown()
	case <-e.ctx.Done():
		err = context.Cause(e.ctx)
	case err = <-failed:
		failed <- nil
	}
	e.cancel(stopping)
	e.stop(server)
	if served := <-failed; !errors.Is(served, grpc.ErrServerStopped) {
		err = errors.Join(err, served)
	}
	return err
}

// windDown waits for the attempts that hold memory, for Grace at most.
func (e *Engine) windDown() {
	e.attempts.refuseNew(stopping)
	grace := time.NewTimer(e.c.Grace)
	defer grace.Stop()
	for {
		sources, targets, idle := e.attempts.count()
		if sources+targets == 0 {
			return
		}
		select {
		case <-idle:
		case <-grace.C:
			return
		case <-e.ctx.Done():
			return
		}
	}
}

// stop lets answers that have just ended reach their readers.
func (e *Engine) stop(server *grpc.Server) {
	hard := time.AfterFunc(time.Second, server.Stop)
	defer hard.Stop()
	server.GracefulStop()
}

// Address is where the engine's gRPC listens.
func (e *Engine) Address() string {
	if e.listener == nil {
		return ""
	}
	return e.listener.Addr().(*net.TCPAddr).String()
}
