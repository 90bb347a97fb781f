package redisledger

import (
	"context"
	"net"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/activities/ledger/ledgertest"
)

// faultHook makes the client's next command, or pipeline, fail below the
// adapter: the server does or does not see it, the adapter gets a timeout.
type faultHook struct {
	mu   sync.Mutex
	next ledgertest.Fault
}

func (h *faultHook) Next(f ledgertest.Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = f
}

func (h *faultHook) run(do func() error, fail func(error)) error {
	h.mu.Lock()
	f := h.next
	h.next = ledgertest.FaultNone
	h.mu.Unlock()
	switch f {
	case ledgertest.FaultDone:
		_ = do() // its answer is lost on the way
		fallthrough
	case ledgertest.FaultNotDone:
		fail(os.ErrDeadlineExceeded)
		return os.ErrDeadlineExceeded
	case ledgertest.FaultTwice:
		_ = do()
	}
	return do()
}

func (h *faultHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *faultHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.run(func() error { return next(ctx, cmd) }, cmd.SetErr)
	}
}

func (h *faultHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.run(func() error { return next(ctx, cmds) }, func(err error) {
			for _, c := range cmds {
				c.SetErr(err)
			}
		})
	}
}
