package world

import (
	"context"
	"sync"

	"github.com/surehand/surehand/contracts/handoff"
)

// gate holds the calls of one step.
type gate struct {
	once    sync.Once
	reached chan struct{}
	open    chan struct{}
}

// Hold makes calls of a step wait. reached is closed when the first one does;
// release lets them go on.
func (w *World) Hold(step handoff.Step) (reached <-chan struct{}, release func()) {
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	w.mu.Lock()
	w.gates[step] = g
	w.mu.Unlock()
	return g.reached, sync.OnceFunc(func() {
		w.mu.Lock()
		delete(w.gates, step)
		w.mu.Unlock()
		close(g.open)
	})
}

func (w *World) pass(ctx context.Context, step handoff.Step) error {
	w.mu.Lock()
	g := w.gates[step]
	w.mu.Unlock()
	if g == nil {
		return nil
	}
	g.once.Do(func() { close(g.reached) })
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return handoff.Errorf(handoff.CodeUnavailable, "%s: the asker left", step)
	}
}
