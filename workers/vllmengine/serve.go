package vllmengine

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/tracing"
)

// keepaliveMin is how often a client may ask whether we live.
const keepaliveMin = 5 * time.Second

// Serve answers gRPC until ctx ends or the front breaks. Then it takes no new
// attempt, gives those that run Grace to end, and ends the rest.
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
	case err = <-e.words: // nobody listens for the connector any more
		e.words <- nil
	case err = <-failed:
		failed <- grpc.ErrServerStopped
	}
	e.cancel(stopping)
	hard := time.AfterFunc(time.Second, server.Stop)
	defer hard.Stop()
	server.GracefulStop() // answers that have just ended reach their readers
	if served := <-failed; !errors.Is(served, grpc.ErrServerStopped) {
		err = errors.Join(err, served)
	}
	return err
}

// windDown waits for the attempts that run, for Grace at most.
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
		}
	}
}

var roles = map[engine.Role]enginev1.Role{
	engine.RolePrefill: enginev1.Role_ROLE_PREFILL, engine.RoleDecode: enginev1.Role_ROLE_DECODE, engine.RoleBoth: enginev1.Role_ROLE_BOTH,
}

// Description is what the engine says of itself now; the registry publishes it.
func (e *Engine) Description() *enginev1.Description {
	hello, beside, load, _ := e.connector.state()
	sources, targets, _ := e.attempts.count()
	model := e.c.Model
	if model == "" {
		model = hello.GetModel()
	}
	return &enginev1.Description{
		Engine: string(e.c.ID), Role: roles[e.c.Role], Model: model, Revision: hello.GetRevision(), Layout: hello.GetLayout(), Described: hello.GetDescribed(),
		BlockTokens: hello.GetBlockTokens(), Blocks: hello.GetBlocks(), BlocksFree: load.GetBlocksFree(),
		Running: load.GetRunning(), Waiting: load.GetWaiting(),
		Node: beside.GetNode(), NodeIncarnation: beside.GetIncarnation(), ControlAddress: e.c.Control, PeerAddress: beside.GetPeerAddress(), PeerProtocol: beside.GetPeerProtocol(),
		MaxTokens: hello.GetMaxTokens(), TargetsHeld: uint32(targets), SourcesHeld: uint32(sources),
		ProcessIncarnation: uint64(e.c.Process), Address: e.Address(), Tokenizes: true,
	}
}
