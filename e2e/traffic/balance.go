package traffic

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fate is what became of one request that a Balancer sent.
type Fate int

// The fates. Before is a failure before the first token, After one behind it.
const (
	Served Fate = iota
	Before
	After
)

// Sent is one request with its fate.
type Sent struct {
	Answer
	Fate  Fate
	Again int // how often it was asked again
}

// Balancer spreads requests over gateways as a load balancer with retries does:
// what was refused as retryable, or broke, before its first token is sent to the
// next gateway under the same idempotency key; nothing is sent again after it.
type Balancer struct {
	Gateways []*Client
	Patience time.Duration // with one request
	Pause    time.Duration // before it is asked again
	next     atomic.Uint64
}

// retryable says that a refusal asks its client to come again.
func (a Answer) retryable() bool {
	if a.Pieces > 0 {
		return false
	}
	return a.Broken != nil || a.Status == http.StatusServiceUnavailable || a.Status == http.StatusTooManyRequests ||
		a.Status == http.StatusOK && a.Failure != nil && a.Failure.Type == "server_error" && slices.Contains(comeAgain, a.Failure.Code)
}

// comeAgain are the codes whose status would have been a 503, in a stream that
// had begun without a token.
var comeAgain = []string{"unavailable", "not_ready", "stale_epoch", "stale_incarnation", "stale_token", "conflict", "closed", "mismatch", "not_validated", "lease", "reset"}

// Send asks until the request is served, fails for good or patience ends.
func (b *Balancer) Send(ctx context.Context, a Ask) (out Sent) {
	if a.Key == "" {
		a.Key = rand.Text()
	}
	for until := time.Now().Add(b.Patience); ; out.Again++ {
		out.Answer = b.Gateways[b.next.Add(1)%uint64(len(b.Gateways))].Send(ctx, a)
		switch {
		case out.Whole() == nil:
			out.Fate = Served
			return out
		case out.Pieces > 0:
			out.Fate = After
			return out
		case !out.retryable() || time.Now().After(until) || ctx.Err() != nil:
			out.Fate = Before
			return out
		}
		select {
		case <-time.After(b.Pause):
		case <-ctx.Done():
		}
	}
}

// Load sends asks from so many clients until stopped, and gives them all.
type Load struct {
	stop chan struct{}
	all  sync.WaitGroup
	mu   sync.Mutex
	sent []Sent
}

// Begin starts a load; send sends the next request.
func Begin(clients int, send func() Sent) *Load {
	l := &Load{stop: make(chan struct{})}
	for range clients {
		l.all.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				s := send()
				l.mu.Lock()
				l.sent = append(l.sent, s)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// Count is how many have been answered until now.
func (l *Load) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sent)
}

// From gives those answered since a count.
func (l *Load) From(n int) []Sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.sent[n:])
}

// End waits for the last ones.
func (l *Load) End() []Sent {
	close(l.stop)
	l.all.Wait()
	return l.From(0)
}
