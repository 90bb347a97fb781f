package native

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// gate lets requests wait for a D before anything is planned for them, in the
// order they came: a burst is neither prefilled all at once, with P pinning what
// D cannot take, nor refused.
type gate struct {
	limit func(model string) int // 0: unbounded

	mu      sync.Mutex
	inside  map[string]int
	waiting map[string][]chan struct{} // closed when let in
	count   int
}

// MaxWaiters bounds who waits.
const MaxWaiters = 4096

func newGate(limit func(string) int) *gate {
	return &gate{limit: limit, inside: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// enter waits for room at a D of the model, at most within. The caller leaves.
func (g *gate) enter(ctx context.Context, model string, within time.Duration) (leave func(), err error) {
	leave = sync.OnceFunc(func() { g.leave(model) })
	g.mu.Lock()
	limit := g.limit(model)
	if len(g.waiting[model]) == 0 && (limit == 0 || g.inside[model] < limit) {
		g.inside[model]++
		g.mu.Unlock()
		return leave, nil
	}
	if within <= 0 || g.count >= MaxWaiters {
		g.mu.Unlock()
		return nil, handoff.Errorf(handoff.CodeCapacity, "%d requests are at the decode engines of %s, their limit is %d", g.at(model), model, limit)
	}
	turn := make(chan struct{})
	g.waiting[model] = append(g.waiting[model], turn)
	g.count++
	g.mu.Unlock()

	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-turn:
		return leave, nil
	case <-timer.C:
		err = handoff.Errorf(handoff.CodeCapacity, "no room at a decode engine of %s within %s", model, within)
	case <-ctx.Done():
		err = handoff.Errorf(handoff.CodeCancelled, "the client left")
	}
	if !g.drop(model, turn) {
		leave() // let in at the same moment
	}
	return nil, err
}

func (g *gate) at(model string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside[model]
}

// drop takes a waiter out; false when it was let in.
func (g *gate) drop(model string, turn chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting[model], turn)
	if i < 0 {
		return false
	}
	g.waiting[model] = slices.Delete(g.waiting[model], i, i+1)
	g.count--
	return true
}

func (g *gate) leave(model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside[model]--
	g.letIn(model)
}

// moved looks again after a limit changed.
func (g *gate) moved() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for model := range g.waiting {
		g.letIn(model)
	}
}

func (g *gate) letIn(model string) {
	limit := g.limit(model)
	for len(g.waiting[model]) > 0 && (limit == 0 || g.inside[model] < limit) {
		close(g.waiting[model][0])
		g.waiting[model] = g.waiting[model][1:]
		g.count--
		g.inside[model]++
	}
	if len(g.waiting[model]) == 0 {
		delete(g.waiting, model)
	}
	if g.inside[model] == 0 {
		delete(g.inside, model)
	}
}

// Enter waits until a D of the model has room for one more request, as far as
// its limit is known. The caller leaves when the request is over.
func (f *Fleet) Enter(ctx context.Context, model string) (leave func(), err error) {
	return f.gate.enter(ctx, model, f.config.Wait)
}
