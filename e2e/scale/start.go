package scale

import (
	"context"
	"fmt"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/peers/fake"
	"github.com/surehand/surehand/e2e/traffic"
)

// sender sends the i-th request of a client.
type sender = func(ctx context.Context, client, i int) traffic.Answer

// start runs a cell's fleet. The caller calls end and then stops the fleet, also
// when start fails.
func start(ctx context.Context, p fleet.Programs, dir string, x Cell) (f *fleet.Fleet, send sender, end func(), err error) {
	end = func() {}
	switch x.Engines {
	case Nobody:
		return startEmpty(ctx, p, dir, x)
	case Native:
		f, send, err = startNative(ctx, p, dir, x)
	default:
		f, send, err = startTransferd(ctx, p, dir, x)
	}
	return f, send, end, err
}

func startTransferd(ctx context.Context, p fleet.Programs, dir string, x Cell) (*fleet.Fleet, sender, error) {
	f, err := fleet.Start(ctx, p, dir, fleet.Options{Prefill: enginesEach, Decode: enginesEach, Gateways: x.Gateways, Lease: lease, Record: x.Record,
		NoTraces: true, Postgres: x.Store == PostgreSQL, Shards: x.Shards})
	if err != nil {
		return f, nil, err
	}
	clients := make([]*traffic.Client, x.Gateways)
	for i := range clients {
		clients[i] = traffic.NewClient(f.HTTP[fmt.Sprintf("g%d", i+1)])
	}
	return f, func(ctx context.Context, client, _ int) traffic.Answer {
		return clients[client%len(clients)].Send(ctx, traffic.Ask{Model: fleet.SyntheticModel, Prompt: traffic.Words(prompt), MaxTokens: tokens})
	}, nil
}

const (
	enginesEach = 2 // of either role
	lease       = 6 * time.Second
)

// startNative runs one gateway in front of a fake P and a fake D.
func startNative(ctx context.Context, p fleet.Programs, dir string, x Cell) (*fleet.Fleet, sender, error) {
	program, err := fleet.Program(ctx, "fakeengine", "./e2e/cmd/fakeengine")
	if err != nil {
		return nil, nil, err
	}
	f, err := fleet.Bare(p, dir)
	if err != nil {
		return f, nil, err
	}
	f.Options.Postgres, f.Options.Shards = x.Store == PostgreSQL, x.Shards
	n := fleet.Native{Args: []string{"--record", x.Record}}
	for _, role := range []string{"p", "d"} {
		at, err := fleet.Address()
		if err != nil {
			return f, nil, err
		}
		args := []string{"--name", role, "--kind", string(fake.VLLM), "--listen", at}
		if role == "p" {
			side, err := fleet.Address()
			if err != nil {
				return f, nil, err
			}
			n.Prefill, args = append(n.Prefill, "http://"+at), append(args, "--side", side)
		} else {
			n.Decode = append(n.Decode, "http://"+at)
		}
		if _, err := f.Add(ctx, fleet.Foreign{Name: "fake-" + role, Path: program, Args: args, Says: true}); err != nil {
			return f, nil, err
		}
	}
	if err := f.StartTemporal(ctx); err != nil {
		return f, nil, err
	}
	if err := f.Serve(ctx, n); err != nil {
		return f, nil, err
	}
	client := traffic.NewClient(f.HTTP[fleet.Gateway])
	return f, func(ctx context.Context, _, _ int) traffic.Answer {
		body := fmt.Appendf(nil, `{"model":%q,"prompt":"%d %s","max_tokens":%d,"stream":true}`, fake.Model, asked.Add(1), traffic.Words(prompt), tokens)
		return client.Stream(ctx, "/v1/completions", body, nil, nil)
	}, nil
}
