package orchestrator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// startPatience is how long a start may take while Temporal answers others.
const startPatience = 10 * time.Second

// pulse knows when Temporal last answered anything. A start that is slow because
// the server is busy is waited for; one that is slow because the server is away
// is refused within the start's own time (L8).
type pulse struct{ last atomic.Int64 }

// intercept notes every answer on the connection to Temporal.
func (p *pulse) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoker(ctx, method, req, reply, cc, opts...)
	if err == nil {
		p.last.Store(time.Now().UnixNano())
	}
	return err
}

// patient ends after within, unless something was answered within that time:
// then after as much again, and after startPatience at the latest. Its cause says which.
func (p *pulse) patient(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	most := max(within, startPatience)
	ctx, stop := context.WithTimeoutCause(ctx, most, fmt.Errorf("Temporal, busy, did not answer it for %s", most))
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		t := time.NewTicker(within)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if time.Since(time.Unix(0, p.last.Load())) > within {
					cancel(fmt.Errorf("Temporal answered nothing for %s", within))
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil); stop() }
}
