package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/rpc"
)

// server is the gateway that a client command speaks to.
type server struct {
	address, ca, cert, key string
	apiKey, tenant         string
	timeout                time.Duration
}

func (s *server) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.address, "server", "127.0.0.1:8081", "gRPC address of a gateway")
	f.StringVar(&s.tenant, "tenant", "", "tenant (default: that of the API key, or \"default\")")
	f.StringVar(&s.apiKey, "api-key", "", "API key; better in the environment, as SUREHAND_API_KEY")
	f.StringVar(&s.ca, "tls-ca", "", "PEM file of the CA of the gateway's certificate (default: the system's)")
	f.StringVar(&s.cert, "tls-cert", "", "PEM file of our certificate")
	f.StringVar(&s.key, "tls-key", "", "PEM file of our key")
	f.DurationVar(&s.timeout, "timeout", 0, "give up after this long (default: never for submit, else 10s)")
	c.GroupID = groupClient
}

// dial connects with TLS, except to loopback without a CA.
func (s *server) dial(ctx context.Context, otherwise time.Duration) (*grpc.ClientConn, context.Context, func() error, error) {
	secure, err := clientTLS(s.ca, s.cert, s.key)
	if err != nil {
		return nil, nil, nil, err
	}
	var creds credentials.TransportCredentials
	switch {
	case secure != nil:
		creds = credentials.NewTLS(secure)
	case onLoopback(s.address):
		creds = insecure.NewCredentials()
	default:
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13})
	}
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, nil, nil, err
	}
	if s.apiKey != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.apiKey)
	}
	timeout := s.timeout
	if timeout == 0 {
		timeout = otherwise
	}
	if timeout == 0 {
		return conn, ctx, conn.Close, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return conn, ctx, func() error { cancel(); return conn.Close() }, nil
}

// call runs one client command.
func (s *server) call(c *cobra.Command, otherwise time.Duration, do func(context.Context, submitv1.SubmitClient) error) (err error) {
	return s.over(c, otherwise, func(ctx context.Context, conn *grpc.ClientConn) error { return do(ctx, submitv1.NewSubmitClient(conn)) })
}

// over runs one command over a connection.
func (s *server) over(c *cobra.Command, otherwise time.Duration, do func(context.Context, *grpc.ClientConn) error) (err error) {
	stopped, stop := untilStopped(c)
	defer stop()
	client, ctx, closeConn, err := s.dial(stopped, otherwise)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeConn()) }()
	if err := do(ctx, client); err != nil {
		if stopped.Err() != nil {
			return context.Canceled
		}
		return s.explain(rpc.FromStatus(err))
	}
	return nil
}

func (s *server) explain(err error) error {
	return fmt.Errorf("gateway at %s: %w", s.address, err)
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
