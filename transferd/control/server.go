package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/internal/native"
)

const side = "control" // of what is told of whom it turned away

const (
	maxMessageBytes = 1 << 20 // of a request
	maxHeaderBytes  = 16 << 10
	maxStreams      = 65536
	stopTimeout     = 2 * time.Second
	// greetTimeout is what a caller may take for TLS and HTTP/2's preface: whoever
	// says less is not kept.
	greetTimeout = 5 * time.Second
)

// Server is the listening control side.
type Server struct {
	listener net.Listener
	server   *grpc.Server
	address  string
}

// Listen opens unix:///path (mode 0600, this user only) or a TCP address:
// loopback, or any with TLS.
// Whom it turns away, refused is told.
func Listen(address string, service *Service, secure *tls.Config, refused func(side, peer string, why error)) (*Server, error) {
	l, public, err := listen(address, secure != nil, refused)
	if err != nil {
		return nil, fmt.Errorf("control address: %w", err)
	}
	opts := []grpc.ServerOption{
		grpc.ConnectionTimeout(greetTimeout), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	if secure != nil {
		opts = append(opts, grpc.Creds(greeter{credentials.NewTLS(secure), refused}))
	}
	s := &Server{listener: l, server: grpc.NewServer(append(opts, tracing.ServerOptions()...)...), address: public}
	transferv1.RegisterTransferServer(s.server, service)
	return s, nil
}

func listen(address string, secure bool, refused func(side, peer string, why error)) (net.Listener, string, error) {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, "", err
		}
		l, err := native.ListenPrivate(path)
		if err != nil {
			return nil, "", err
		}
		return &ownUser{UnixListener: l, refused: refused}, address, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	if !secure && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return nil, "", errors.Join(fmt.Errorf("%s is not loopback and needs TLS: give --tls-cert, --tls-key and --tls-ca", l.Addr()), l.Close())
	}
	return l, l.Addr().String(), nil
}

// ownUser accepts only peers with this process's user id.
type ownUser struct {
	*net.UnixListener
	refused func(side, peer string, why error)
}

func (l *ownUser) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := native.PeerUser(c)
		if err == nil && int64(uid) == int64(os.Getuid()) {
			return c, nil
		}
		if err == nil {
			err = handoff.Errorf(handoff.CodeDenied, "the caller has user id %d, the daemon %d", uid, os.Getuid())
		}
		_ = c.Close() // of no use to anybody
		l.refused(side, fmt.Sprint("uid ", uid), err)
	}
}

// greeter tells of callers that TLS turns away.
type greeter struct {
	credentials.TransportCredentials
	refused func(side, peer string, why error)
}

func (g greeter) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := g.TransportCredentials.ServerHandshake(c)
	if err == nil {
		return secured, info, nil
	}
	if why := identity.Greeting(err); handoff.CodeOf(why) != handoff.CodeUnavailable { // who left asked for nothing
		g.refused(side, c.RemoteAddr().String(), why)
	}
	return secured, info, err
}

func (g greeter) Clone() credentials.TransportCredentials {
	return greeter{g.TransportCredentials.Clone(), g.refused}
}

// Address is the address that is really listened on.
func (s *Server) Address() string { return s.address }

// Serve serves until ctx ends; calls that still run then have a moment to end.
func (s *Server) Serve(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		hard := time.AfterFunc(stopTimeout, s.server.Stop)
		defer hard.Stop()
		s.server.GracefulStop()
	})
	err := s.server.Serve(s.listener)
	if !stop() {
		<-stopped
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}
