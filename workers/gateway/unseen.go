package gateway

import (
	"context"
	"sync"

	"github.com/surehand/surehand/workers/orchestrator"
)

// unseen are the answers that are followed though no client waits: those of
// background responses. The zero value is ready.
type unseen struct {
	mu  sync.Mutex
	ids map[string]bool
	all sync.WaitGroup
}

// hold follows f to its end and then calls done; a handoff that is held already
// is only closed.
func (u *unseen) hold(ctx context.Context, id string, f orchestrator.Follower, done func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids[id] {
		f.Close()
		done()
		return
	}
	if u.ids == nil {
		u.ids = map[string]bool{}
	}
	u.ids[id] = true
	u.all.Go(func() {
		defer done()
		defer f.Close()
		for {
			if e, left := next(ctx, f); left || e.Terminal() {
				break
			}
		}
		u.mu.Lock()
		delete(u.ids, id)
		u.mu.Unlock()
	})
}

// wait is for their ends, or ctx's.
func (u *unseen) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { u.all.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
