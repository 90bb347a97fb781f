package traffic

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// MaxInFlight bounds what a load generator holds open at once.
const MaxInFlight = 2000

// Closed sends n requests from so many clients, each waiting for its own answer
// before the next. Answers are in request order.
func Closed(ctx context.Context, clients, n int, send func(ctx context.Context, client, i int) Answer) []Answer {
	out := make([]Answer, n)
	next := make(chan int)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range next {
				out[i] = send(ctx, client, i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	return out
}

// ClosedFor is Closed for as long as given, however many requests that takes.
func ClosedFor(ctx context.Context, clients int, d time.Duration, send func(ctx context.Context, client, i int) Answer) (out []Answer) {
	until := time.Now().Add(d)
	var mu sync.Mutex
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				mu.Lock()
				i := len(out)
				out = append(out, Answer{})
				mu.Unlock()
				a := send(ctx, client, i)
				mu.Lock()
				out[i] = a
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return out
}

// Arrivals sends request i at offset at[i], whatever became of the others.
func Arrivals(ctx context.Context, at []time.Duration, send func(ctx context.Context, i int) Answer) []Answer {
	out := make([]Answer, len(at))
	room := make(chan struct{}, MaxInFlight)
	began := time.Now()
	var all sync.WaitGroup
	for i, offset := range at {
		wait := time.NewTimer(offset - time.Since(began))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			out[i].Broken = ctx.Err()
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			out[i] = send(ctx, i)
			<-room
		})
	}
	all.Wait()
	return out
}

// Poisson is n arrivals at a mean rate a second.
func Poisson(r *rand.Rand, rate float64, n int) []time.Duration {
	out := make([]time.Duration, n)
	var t float64
	for i := range out {
		t += r.ExpFloat64() / rate
		out[i] = time.Duration(t * float64(time.Second))
	}
	return out
}
