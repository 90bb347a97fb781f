package quota

import (
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/contracts/handoff"
)

//go:embed lua/take.lua
var takeText string

//go:embed lua/give.lua
var giveText string

//go:embed lua/renew.lua
var renewText string

var (
	takeScript  = redis.NewScript(takeText)
	giveScript  = redis.NewScript(giveText)
	renewScript = redis.NewScript(renewText)
)

// Redis is a Limiter. Its client, which stays the caller's to close, must not
// retry by itself.
type Redis struct {
	client redis.UniversalClient
	log    *slog.Logger

	mu   sync.Mutex
	held map[string]map[string]int64 // by tenant, by id: tokens
	give sync.WaitGroup
}

// New makes a limiter; Run renews what it holds.
func New(client redis.UniversalClient, log *slog.Logger) *Redis {
	return &Redis{client: client, log: log, held: map[string]map[string]int64{}}
}

// keysOf share one hash tag, so that a Cluster keeps them in one slot.
func keysOf(tenant string) []string {
	tag := "surehand:{quota:" + tenant + "}:"
	return []string{tag + "state", tag + "held", tag + "tokens"}
}

// Take implements Limiter. One round trip; an answer that is lost leaves a hold
// that ends by its lease.
func (r *Redis) Take(ctx context.Context, tenant string, l Limits, tokens int64) (func(), error) {
	if l.None() {
		return func() {}, nil
	}
	if l.TokensInFlight > 0 && tokens > l.TokensInFlight {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "the request may take %d tokens, the tenant's limit tokens_in_flight is %d", tokens, l.TokensInFlight)
	}
	interval := int64(0)
	if l.RequestsPerSecond > 0 {
		interval = int64(float64(time.Second/time.Microsecond) / l.RequestsPerSecond)
	}
	id := rand.Text()
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	got, err := takeScript.Run(ctx, r.client, keysOf(tenant), id, tokens, l.TokensInFlight, interval, max(1, l.Burst),
		Lease.Milliseconds(), MaxHeld, maxExpired).Slice()
	if err != nil || len(got) != 2 {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "the tenant's quota cannot be looked at: %v", err)
	}
	n, _ := got[1].(int64)
	switch got[0] {
	case "ok":
	case "rate":
		return nil, &Refused{handoff.Errorf(handoff.CodeCapacity, "the tenant's limit requests_per_second is %g", l.RequestsPerSecond),
			"requests_per_second", time.Duration(n) * time.Millisecond}
	case "tokens":
		return nil, &Refused{handoff.Errorf(handoff.CodeCapacity, "the tenant has %d tokens in flight and asks for %d; its limit tokens_in_flight is %d",
			n, tokens, l.TokensInFlight), "tokens_in_flight", 0}
	default:
		return nil, &Refused{handoff.Errorf(handoff.CodeCapacity, "the tenant has %d requests in flight, the limit", MaxHeld), "requests in flight", 0}
	}
	r.hold(tenant, id, tokens)
	var once sync.Once
	return func() { once.Do(func() { r.release(tenant, id) }) }, nil
}

func (r *Redis) hold(tenant, id string, tokens int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[tenant] == nil {
		r.held[tenant] = map[string]int64{}
	}
	r.held[tenant][id] = tokens
}

// release gives back in the background: the client has its answer.
func (r *Redis) release(tenant, id string) {
	r.mu.Lock()
	delete(r.held[tenant], id)
	if len(r.held[tenant]) == 0 {
		delete(r.held, tenant)
	}
	r.mu.Unlock()
	r.give.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
		defer cancel()
		if err := giveScript.Run(ctx, r.client, keysOf(tenant), id).Err(); err != nil {
			r.log.Warn("tokens of a tenant count until their lease ends", "tenant", tenant, "error", err.Error())
		}
	})
}

// Run renews what is held here until ctx ends, and waits for what is given back.
func (r *Redis) Run(ctx context.Context) {
	tick := time.NewTicker(Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.renew(ctx)
		case <-ctx.Done():
			r.give.Wait()
			return
		}
	}
}

func (r *Redis) renew(ctx context.Context) {
	for tenant, args := range r.renewals() {
		for len(args) > 0 {
			n := min(len(args), 2*maxBatch)
			call, cancel := context.WithTimeout(ctx, CallTimeout)
			err := renewScript.Run(call, r.client, keysOf(tenant), append([]any{Lease.Milliseconds()}, args[:n]...)...).Err()
			cancel()
			if err != nil && ctx.Err() == nil {
				r.log.Warn("a tenant's tokens in flight were not renewed", "tenant", tenant, "error", err.Error())
			}
			args = args[n:]
		}
	}
}

func (r *Redis) renewals() map[string][]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]any, len(r.held))
	for tenant, ids := range r.held {
		for id, tokens := range ids {
			out[tenant] = append(out[tenant], id, tokens)
		}
	}
	return out
}
