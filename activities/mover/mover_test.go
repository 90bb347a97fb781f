package mover

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/identity/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const domain = "kv.example"

// daemon is the control side of a node, as far as a connection goes.
type daemon struct {
	transferv1.UnimplementedTransferServer
}

func (daemon) Describe(context.Context, *transferv1.DescribeRequest) (*transferv1.Description, error) {
	return &transferv1.Description{Ready: true}, nil
}

func bearer(t *testing.T, a *authority.Authority, uri string) *identity.Source {
	t.Helper()
	f, err := a.Write(t.TempDir(), "x", authority.Leaf{URIs: []string{uri}})
	if err != nil {
		t.Fatal(err)
	}
	f.TrustDomain = domain
	s, err := identity.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Off loopback a daemon is spoken to under its own name only: another daemon's
// certificate, though of the same domain, is nobody to ask whether an attempt is
// closed.
func TestADaemonIsSpokenToUnderItsOwnNameOnly(t *testing.T) {
	a, err := authority.New()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := bearer(t, a, "spiffe://"+domain+"/transferd/td1").TLS(identity.Orchestrator)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(serve)))
	transferv1.RegisterTransferServer(s, daemon{})
	go func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	}()
	defer s.Stop()
	me := bearer(t, a, "spiffe://"+domain+"/orchestrator/g1").TLS(identity.Orchestrator)
	address := l.Addr().String()
	for _, c := range []struct {
		what, node string
		known, ok  bool
	}{{"the node that is there", "td1", true, true}, {"another node", "td2", true, false}, {"nobody's address", "", false, false}} {
		d := &Dialer{TLS: me, Node: func(string) (handoff.NodeID, bool) { return handoff.NodeID(c.node), c.known }}
		m, err := d.Mover(address)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err = m.Describe(ctx, false)
			cancel()
		}
		if (err == nil) != c.ok || err != nil && handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Errorf("%s: %v", c.what, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWithoutTLSOnlyLoopbackIsSpokenTo(t *testing.T) {
	var d Dialer
	if _, err := d.Mover("192.0.2.1:9000"); handoff.CodeOf(err) != handoff.CodeDenied {
		t.Error(err)
	}
	if _, err := d.Mover("127.0.0.1:9000"); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
