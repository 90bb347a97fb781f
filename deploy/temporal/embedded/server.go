// Package embedded runs a whole Temporal server, and its web UI, in this
// process, on two SQLite files or on PostgreSQL: what one machine needs, with
// the settings a handoff's latency asks for.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/surehand/surehand/deploy/temporal/settings"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// stopTimeout bounds an orderly stop. Past it the process may just end: what
// was acknowledged is on disk.
const stopTimeout = 10 * time.Second

// lockTimeout bounds the wait for a server before this one to stop, which one
// whose parent was killed does within a second or so.
const lockTimeout = 3 * time.Second

// stores are where a server keeps what it is told. They are this server's alone
// until they are released.
type stores struct {
	main, visibility *config.SQL
	shards           int
	release          func() error
}

func openStores(ctx context.Context, s settings.Settings) (stores, error) {
	if s.Store != "" {
		return openPostgres(ctx, s)
	}
	return openSQLite(ctx, s)
}

// Server is a running embedded server.
type Server struct {
	temporal temporal.Server
	ui       *ui
	stores   stores
	frontend netip.AddrPort
}

// Start returns when every namespace answers, its search attributes can be
// queried by, and the UI's page can be read; ctx bounds the wait.
func Start(ctx context.Context, s settings.Settings) (*Server, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	opened, err := openStores(ctx, s)
	if err != nil {
		return nil, err
	}
	server := &Server{stores: opened}
	if err := server.start(ctx, s); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return server, nil
}

func (s *Server) start(ctx context.Context, from settings.Settings) error {
	if err := createNamespaces(from, s.stores.main); err != nil {
		return err
	}
	p, err := choosePorts(from.Frontend)
	if err != nil {
		return err
	}
	s.frontend = p.frontend
	server, err := newTemporal(from, p, s.stores)
	if err != nil {
		return fmt.Errorf("set up the Temporal server: %w", err)
	}
	s.temporal = server
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the Temporal server: %w", err)
	}
	if err := waitUsable(ctx, from, p.frontend); err != nil {
		return err
	}
	if !from.UI.IsValid() {
		return nil
	}
	s.ui, err = startUI(ctx, from.UI, p.frontend, from.Namespaces[0], from.UICodec)
	return err
}

func newTemporal(from settings.Settings, p ports, in stores) (temporal.Server, error) {
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: from.LogLevel})) // JSON, to stderr
	return temporal.NewServer(
		temporal.WithConfig(serverConfig(from, p, in)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(staticHosts(p)),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
		temporal.WithDynamicConfigClient(dynamicConfig()),
	)
}

// waitUsable asks what a client will ask.
func waitUsable(ctx context.Context, from settings.Settings, frontend netip.AddrPort) error {
	conn, err := grpc.NewClient(frontend.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	for _, namespace := range from.Namespaces {
		if err = waitNamespace(ctx, conn, namespace); err != nil {
			break
		}
		if err = registerAttributes(ctx, conn, namespace, from.SearchAttributes); err != nil {
			break
		}
	}
	if err == nil {
		err = sameShards(ctx, conn, from.Shards)
	}
	return errors.Join(err, conn.Close())
}

// ErrOtherShards refuses a store that has another number of history shards than
// was asked for: they cannot be changed.
var ErrOtherShards = errors.New("the store has another number of history shards")

func sameShards(ctx context.Context, conn *grpc.ClientConn, wanted int) error {
	if wanted == 0 {
		return nil
	}
	has, err := workflowservice.NewWorkflowServiceClient(conn).GetClusterInfo(ctx, &workflowservice.GetClusterInfoRequest{})
	if err != nil {
		return fmt.Errorf("ask for the number of history shards: %w", err)
	}
	if n := int(has.GetHistoryShardCount()); n != wanted {
		return fmt.Errorf("%w: %d, not %d; leave --shards out to take them as they are, or name another database", ErrOtherShards, n, wanted)
	}
	return nil
}

// Frontend is where clients dial.
func (s *Server) Frontend() string { return s.frontend.String() }

// UI is the page's address, empty without one.
func (s *Server) UI() string {
	if s.ui == nil {
		return ""
	}
	return s.ui.url()
}

// Stop ends the UI, then the server, then lets go of the data.
func (s *Server) Stop() error {
	if s.ui != nil {
		s.ui.stop()
	}
	if s.temporal != nil {
		stopped := make(chan error, 1)
		go func() { stopped <- s.temporal.Stop() }()
		select {
		case err := <-stopped:
			if err != nil {
				return fmt.Errorf("stop the Temporal server: %w", err)
			}
		case <-time.After(stopTimeout):
			return fmt.Errorf("the Temporal server did not stop within %s; nothing acknowledged is lost", stopTimeout)
		}
	}
	return s.stores.release()
}
