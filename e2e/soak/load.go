package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/traffic"
)

// load is what the clients do and how it went.
type load struct {
	stage *chaos.Stage
	seed  uint64

	mu     sync.Mutex
	counts map[string]int
	wrong  []error
}

func (l *load) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, err)
}

// client asks one thing after the other until ctx ends: short and long prompts,
// some with a key that is asked twice, some by a client that leaves.
func (l *load) client(ctx context.Context, n int) {
	r := rand.New(rand.NewPCG(l.seed, uint64(n)))
	gateways := []string{"g1", "g2"}
	for i := 0; ctx.Err() == nil; i++ {
		c := l.stage.Clients[gateways[r.IntN(2)]]
		tokens := 4 + r.IntN(30)
		a := traffic.Ask{Model: l.stage.Options.ModelName(), Prompt: traffic.Words(60 + r.IntN(700)), MaxTokens: tokens, Seed: r.IntN(1000), Deadline: 20 * time.Second}
		switch r.IntN(8) {
		case 0:
			l.leaves(ctx, c, a, 1+r.IntN(tokens))
		case 1:
			a.Key = fmt.Sprintf("soak-%d-%d-%d", l.seed, n, i)
			if l.asks(ctx, c, a, tokens) {
				l.asks(ctx, l.stage.Clients[gateways[r.IntN(2)]], a, tokens)
				l.count("asked twice")
			}
		default:
			l.asks(ctx, c, a, tokens)
		}
		pause(ctx, time.Duration(r.IntN(int(300*time.Millisecond))))
	}
}

// asks sends one request: whole, or refused with a type; anything else is wrong.
func (l *load) asks(ctx context.Context, c *traffic.Client, a traffic.Ask, tokens int) (whole bool) {
	answer := c.Send(context.WithoutCancel(ctx), a)
	switch {
	case answer.Failure == nil:
		if err := answer.Counted(tokens); err != nil {
			l.fail(fmt.Errorf("%s: %w", answer.Handoff, err))
			return false
		}
		l.count("whole")
		return true
	case answer.Typed() != nil:
		l.fail(fmt.Errorf("%s: %w", answer.Handoff, answer.Typed()))
	default:
		l.count("typed: " + answer.Failure.Code)
	}
	return false
}

func (l *load) leaves(ctx context.Context, c *traffic.Client, a traffic.Ask, after int) {
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	a.OnPiece = func(pieces int) {
		if pieces >= after {
			leave()
		}
	}
	c.Send(ctx, a)
	l.count("left")
}

// stumble stops one process for less than a lease, now and then.
func (l *load) stumble(ctx context.Context, every time.Duration) {
	r := rand.New(rand.NewPCG(l.seed, 1<<32))
	for pause(ctx, every/2+time.Duration(r.Int64N(int64(every)))) {
		all := l.stage.Processes()
		p := all[r.IntN(len(all))]
		if err := p.Pause(); err != nil {
			l.fail(err)
		}
		pause(context.WithoutCancel(ctx), 100*time.Millisecond+time.Duration(r.Int64N(int64(chaos.Lease)/3)))
		if err := p.Resume(); err != nil {
			l.fail(err)
		}
		l.count("stops of " + p.Kind())
	}
}

// pause waits; false when ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}
