package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/surehand/surehand/e2e/bare"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Config of a run.
type Config struct {
	Clients      []int // closed loops of so many clients each
	Rounds       int   // of either side, in turns
	Requests     int   // a client sends in a round
	Prefill      time.Duration
	PromptTokens int
	Tokens       int           // of an answer
	Step         time.Duration // between two of them
	Engines      int           // of each role
	AtOnce       bool          // all clients ask in the same moment, for ever; else they begin spread over one answer's time
	Lease        time.Duration
	Record       string
	Profiles     string    // a directory for CPU profiles taken after the rounds; empty: none
	Out          io.Writer // progress
}

// Default is what the musts are stated for: an 80 ms prefill. Answers come at
// the pace of a large model, so that the closed loops ask of the machine what
// real ones do.
func Default() Config {
	return Config{Clients: []int{1, 8, 32}, Rounds: 5, Requests: 20, Prefill: 80 * time.Millisecond, PromptTokens: 512, Tokens: 32, Step: 20 * time.Millisecond,
		Engines: 8, Lease: 6 * time.Second, Out: io.Discard}
}

const (
	chunksOfPrefill = 4
	framing         = 2 // tokens that the engines add to a prompt's bytes
	restWithin      = 20 * time.Second
)

// Side is who hands off.
type Side string

// The two sides.
const (
	Bare     Side = "bare"
	Surehand Side = "surehand"
)

// Round is one side's closed loop of one size, once.
type Round struct {
	Side    Side
	Clients int
	traffic.Summary
	First []time.Duration          // to the first token, of each request
	CPU   map[string]time.Duration // by kind of process, and the generator's own
	Redis int                      // commands of its store, background and all; 0: not told
	Ways  []Way
}

// Run measures.
func Run(ctx context.Context, c Config) (r *Report, err error) {
	p, err := fleet.Build(ctx, true)
	if err != nil {
		return nil, err
	}
	load, err := loadAverage()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "surehand-bench-")
	if err != nil {
		return nil, err
	}
	o := fleet.Options{Prefill: c.Engines, Decode: c.Engines, Gateways: 1, Chunk: max(1, c.PromptTokens/chunksOfPrefill),
		Lease: c.Lease, Record: c.Record, NoTraces: true, Step: c.Step, Profiles: c.Profiles != ""}
	if c.Prefill > 0 {
		o.PrefillRate = float64(c.PromptTokens) / c.Prefill.Seconds()
	}
	f, err := fleet.Start(ctx, p, dir, o)
	defer func() { err = errors.Join(err, f.Stop(), os.RemoveAll(dir)) }()
	if err != nil {
		return nil, err
	}
	b := &bench{Config: c, f: f, client: traffic.NewClient(f.HTTP["g1"]), proxy: bare.New(f)}
	defer b.client.Close()
	r = &Report{Config: c, Load: load}
	if err := b.warm(ctx); err != nil {
		return nil, err
	}
	if r.History, err = b.history(ctx); err != nil { // first, before anything can trail
		return nil, err
	}
	if err := b.rounds(ctx, r); err != nil {
		return r, err
	}
	if b.Profiles == "" {
		return r, nil
	}
	clients := slices.Max(b.Clients)
	return r, b.f.Profile(ctx, b.Profiles, func(ctx context.Context) {
		traffic.Closed(ctx, clients, clients*b.Requests, func(ctx context.Context, client, _ int) traffic.Answer {
			return b.client.Send(ctx, b.ask(client))
		})
	})
}

type bench struct {
	Config
	f      *fleet.Fleet
	client *traffic.Client
	proxy  *bare.Proxy
}

// ask gives each client engines of its own for as long as there are some, so
// that rounds of both sides meet the same queues.
func (b *bench) ask(client int) traffic.Ask {
	engine := client%b.Engines + 1
	return traffic.Ask{Model: fleet.SyntheticModel, Prompt: traffic.Words(b.PromptTokens - framing), MaxTokens: b.Tokens,
		Prefill: fmt.Sprintf("p%d", engine), Decode: fmt.Sprintf("d%d", engine)}
}

// warm makes connections, fills caches and starts pollers.
func (b *bench) warm(ctx context.Context) error {
	for _, side := range []Side{Bare, Surehand} {
		if _, err := b.round(ctx, side, b.Engines, 2); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	}
	return nil
}

func (b *bench) rounds(ctx context.Context, r *Report) error {
	for _, clients := range b.Clients {
		for i := range b.Rounds {
			for _, side := range []Side{Bare, Surehand} {
				round, err := b.round(ctx, side, clients, b.Requests)
				if err != nil {
					return err
				}
				r.Rounds = append(r.Rounds, round)
			}
			fmt.Fprintf(b.Out, "c=%d: round %d of %d\n", clients, i+1, b.Rounds)
		}
	}
	return nil
}

// round runs one side and waits until what it used is free again, so that the
// work that trails a stream is counted to it.
func (b *bench) round(ctx context.Context, side Side, clients, each int) (Round, error) {
	before, err := b.cpu()
	if err != nil {
		return Round{}, err
	}
	asked, counts, err := b.f.RedisCommands(ctx)
	if err != nil {
		return Round{}, err
	}
	times := make([]bare.Times, clients*each)
	began := time.Now()
	answers := traffic.Closed(ctx, clients, clients*each, func(ctx context.Context, client, i int) traffic.Answer {
		if !b.AtOnce && i < clients { // the first of each client, for they take their turns in order
			time.Sleep(time.Duration(i) * (b.Prefill + time.Duration(b.Tokens)*b.Step) / time.Duration(clients))
		}
		if side == Surehand {
			return b.client.Send(ctx, b.ask(client))
		}
		var a traffic.Answer
		a, times[i] = b.proxy.Send(ctx, b.ask(client))
		return a
	})
	took := time.Since(began)
	for _, a := range answers {
		if err := b.ended(a); err != nil {
			return Round{}, fmt.Errorf("%s at %d clients: %w", side, clients, err)
		}
	}
	if err := b.f.AtRest(ctx, restWithin); err != nil {
		return Round{}, fmt.Errorf("%s at %d clients: %w", side, clients, err)
	}
	after, err := b.cpu()
	if err != nil {
		return Round{}, err
	}
	for kind := range after {
		after[kind] -= before[kind]
	}
	var first []time.Duration
	for _, a := range answers {
		if a.Failure == nil {
			first = append(first, a.FirstToken)
		}
	}
	now, _, err := b.f.RedisCommands(ctx)
	if !counts || err != nil {
		asked, now = 0, 0
	}
	out := Round{Side: side, Clients: clients, Summary: traffic.Summarize(answers, took, traffic.SLO{}), First: first, CPU: after, Redis: now - asked}
	switch {
	case err != nil:
	case side == Surehand:
		out.Ways, err = b.ways(ctx, answers)
	default:
		for i, a := range answers {
			out.Ways = append(out.Ways, bareWay(times[i], a.FirstToken))
		}
	}
	return out, err
}

// ended is an error unless the stream was whole, or refused with a type: more
// than the machine can do is refused, which the report tells.
func (b *bench) ended(a traffic.Answer) error {
	if a.Failure != nil {
		return a.Typed()
	}
	return a.Counted(b.Tokens)
}
