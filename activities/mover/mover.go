// Package mover is the orchestrator's client of transferd: one kept connection
// for each daemon, found by the address that a plan's route names.
package mover

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// Mover is one transferd as the steps use it; every method is safe to repeat
// and returns a *handoff.Error.
type Mover interface {
	Pull(ctx context.Context, s client.PullSpec, progress func(client.Progress)) (client.PullResult, error)
	Commit(ctx context.Context, p handoff.Plan, t handoff.Token, op handoff.OperationID, lease time.Duration) (client.TargetAnswer, error)
	Undo(ctx context.Context, p handoff.Plan, op handoff.OperationID, sides client.Sides) (client.CloseAnswer, error)
	Release(ctx context.Context, p handoff.Plan, op handoff.OperationID, sides client.Sides) (client.CloseAnswer, error)
	Renew(ctx context.Context, targets, sources []handoff.Attempt, lease time.Duration) (lost []handoff.Attempt, err error)
	Describe(ctx context.Context, attempts bool) (*transferv1.Description, error)
}

// Directory finds a daemon by its control address.
type Directory interface {
	Mover(address string) (Mover, error)
}

// Dialer is the Directory over gRPC. The zero value speaks to loopback only.
type Dialer struct {
	// TLS, when it is set, is spoken to every daemon, which must show the
	// certificate of the node that Node names at its address: whoever answers for
	// a daemon says whether an attempt is closed.
	TLS  *tls.Config
	Node func(address string) (handoff.NodeID, bool)
	// Silence is for how long a host may answer no packet; 0: client.Silence.
	Silence time.Duration

	mu    sync.Mutex
	conns map[string]*client.Control
}

// Mover gives the kept connection of address.
func (d *Dialer) Mover(address string) (Mover, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.conns[address]; c != nil {
		return c, nil
	}
	options := []client.Option{client.WithSilence(d.Silence)}
	if d.TLS != nil {
		node, ok := d.Node(address)
		if !ok {
			return nil, handoff.Errorf(handoff.CodeUnavailable, "no engine has registered a daemon at %s, so its name is not known", address)
		}
		config := d.TLS.Clone()
		config.ServerName = string(node)
		options = append(options, client.WithTLS(config))
	}
	c, err := client.Dial(address, options...)
	if err != nil {
		return nil, err
	}
	if d.conns == nil {
		d.conns = map[string]*client.Control{}
	}
	d.conns[address] = c
	return c, nil
}

// Close ends every connection.
func (d *Dialer) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var first error
	for _, c := range d.conns {
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}
	d.conns = nil
	return first
}
