// Package reference is the adapter of activities/engine for the reference
// engine: gRPC over connections that are kept, one an address. It never sends
// plaintext off this host.
package reference

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/surehand/surehand/activities/engine"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/transferd/client"
)

// Limits.
const (
	streamWindow = 64 << 10 // bytes that an engine may send ahead of a stream's reader
	connWindow   = 4 << 20  // and of all together
	// MaxMessageBytes bounds one message either way; a prompt travels in one.
	MaxMessageBytes = 4 << 20
	maxAddresses    = 1024
	connectBackoff  = 500 * time.Millisecond // longest wait before the next try to connect
)

// Connections finds engines by address. The zero value is not usable:
// NewConnections. Safe for concurrent use.
type Connections struct {
	tls     *tls.Config
	silence time.Duration

	mu     sync.Mutex
	byAddr map[string]*connection // nil once closed
}

// connection is that to one address.
type connection struct {
	*grpc.ClientConn
	dialer  *net.Dialer
	refused atomic.Bool // the last try to connect was: nobody listens there
}

func (c *connection) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, "tcp", address)
	c.refused.Store(errors.Is(err, syscall.ECONNREFUSED))
	return conn, err
}

var _ engine.Directory = (*Connections)(nil)

// NewConnections makes an empty cache. config is used for every address when it
// is not nil; without it only loopback is spoken to. A host that answers no packet for
// so long is given up; 0: client.Silence.
func NewConnections(config *tls.Config, silence time.Duration) *Connections {
	return &Connections{tls: config, silence: silence, byAddr: map[string]*connection{}}
}

// Engine gives the engine at host:port. It connects when first used.
func (c *Connections) Engine(address string) (engine.Engine, error) {
	conn, err := c.conn(address)
	if err != nil {
		return nil, err
	}
	return &remote{enginev1.NewEngineClient(conn), conn}, nil
}

func (c *Connections) conn(address string) (*connection, error) {
	creds, err := c.credentials(address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byAddr == nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "connections are closed")
	}
	if conn := c.byAddr[address]; conn != nil {
		return conn, nil
	}
	if len(c.byAddr) >= maxAddresses {
		return nil, handoff.Errorf(handoff.CodeCapacity, "%d engine addresses, limit %d", len(c.byAddr), maxAddresses)
	}
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = connectBackoff/10, connectBackoff
	conn := &connection{dialer: client.Dialer(c.silence)}
	conn.ClientConn, err = grpc.NewClient("passthrough:///"+address, append(tracing.DialOptions(),
		grpc.WithTransportCredentials(creds), grpc.WithContextDialer(conn.dial),
		grpc.WithDisableServiceConfig(), // no retry of gRPC's own: repeats are the caller's decision
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: connectBackoff}),
		client.Keepalive(c.silence),
		// Windows that grow have gRPC measure the way with a ping at every token.
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)))...)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "engine address: %s", err)
	}
	c.byAddr[address] = conn
	return conn, nil
}

// credentials refuses an address to which plaintext would leave this host.
func (c *Connections) credentials(address string) (credentials.TransportCredentials, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "engine address is no host:port")
	}
	if c.tls != nil {
		return credentials.NewTLS(c.tls), nil
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, handoff.Errorf(handoff.CodeDenied, "engine at %s is not on loopback and TLS is not configured", address)
	}
	return insecure.NewCredentials(), nil
}

// Forget drops the connection to an address that the registry lost.
func (c *Connections) Forget(address string) error {
	c.mu.Lock()
	conn := c.byAddr[address]
	delete(c.byAddr, address)
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// Close ends every call under way. A second call does nothing.
func (c *Connections) Close() error {
	c.mu.Lock()
	conns := c.byAddr
	c.byAddr = nil
	c.mu.Unlock()
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
