//go:build e2e

package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Every component is restarted in turn, as the operations guide says, under load
// through a balancer that asks again what was refused before its first token. No
// request fails: none before its first token, none after it.
func TestARollingRestartOfEveryComponentFailsNoRequest(t *testing.T) {
	s := open(t, chaos.Options())
	if err := s.AddWorker(t.Context(), "w1"); err != nil {
		t.Fatal(err)
	}
	roll(t, s, []string{"g1", "g2", "w1", "p1", "p2", "d1", "d2", "tp1", "tp2", "td1", "td2", fleet.Redis, fleet.Temporal}, nil)
}

const (
	rollClients  = 4
	rollTokens   = 30
	rollPatience = 25 * time.Second
	rollAround   = 8 // requests that end before and after each restart
)

// roll restarts components under load. change, if any, is called while a process
// is down. It fails the test unless every request was served whole.
func roll(t *testing.T, s *stage, names []string, change func(*fleet.Process)) {
	t.Helper()
	ctx := within(t, 10*time.Minute)
	b := &traffic.Balancer{Gateways: []*traffic.Client{s.g1(), s.g2()}, Patience: rollPatience, Pause: 50 * time.Millisecond}
	load := traffic.Begin(rollClients, func() traffic.Sent {
		return b.Send(ctx, traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(longPrompt), MaxTokens: rollTokens, Deadline: 20 * time.Second})
	})
	defer func() { load.End() }()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "restarted\ttook\trequests\tasked again\tfailed before the first token\tafter it")
	for _, name := range names {
		first := load.Count()
		answered(ctx, t, load, first+rollAround)
		began := time.Now()
		if err := restarted(ctx, s, name, change); err != nil {
			t.Errorf("%s: %s\n%s", name, err, s.Logs())
		}
		took := time.Since(began)
		answered(ctx, t, load, load.Count()+rollAround+rollClients)
		sent := load.From(first)
		again, before, after := 0, 0, 0
		for _, one := range sent {
			again += one.Again
			switch one.Fate {
			case traffic.Before:
				before++
			case traffic.After:
				after++
			}
			if one.Fate != traffic.Served {
				t.Errorf("%s: %s: %s %v", name, one.Handoff, chaos.Verdict(one.Answer), one.Broken)
			} else if err := one.Counted(rollTokens); err != nil {
				t.Errorf("%s: %s: %s", name, one.Handoff, err)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\n", name, took.Round(10*time.Millisecond), len(sent), again, before, after)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", table.String())
}

// answered waits until so many requests are over.
func answered(ctx context.Context, t *testing.T, l *traffic.Load, n int) {
	t.Helper()
	for l.Count() < n {
		select {
		case <-ctx.Done():
			t.Fatal("no request is answered any more")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// restarted ends a process in order and starts it again. An engine, or the one
// beside a daemon, is drained before: it owes nothing and gets nothing.
func restarted(ctx context.Context, s *stage, name string, change func(*fleet.Process)) (err error) {
	p := s.Process(name)
	if engine := strings.TrimPrefix(name, "t"); name != fleet.Temporal && (engine[0] == 'p' || engine[0] == 'd') {
		back, err := s.drained(ctx, engine)
		if err != nil {
			return err
		}
		defer back(&err)
	}
	if err := p.Stop(); err != nil {
		return err
	}
	if change != nil {
		change(p)
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	return s.Answers(ctx)
}

// drained cordons an engine, waits until it owes nothing, and tells how to have
// it take work again.
func (s *stage) drained(ctx context.Context, engine string) (back func(*error), err error) {
	conn, err := s.Operators("g1")
	if err != nil {
		return nil, err
	}
	op := operatev1.NewOperatorClient(conn)
	owes, err := op.Drain(ctx, &operatev1.CordonRequest{Engine: engine, Reason: "upgrade"})
	for err == nil {
		_, err = owes.Recv()
	}
	if err.Error() != "EOF" {
		return nil, fmt.Errorf("drain %s: %w", engine, err)
	}
	return func(failed *error) {
		defer conn.Close()
		_, err := op.Cordon(ctx, &operatev1.CordonRequest{Engine: engine, Off: true, Reason: "upgraded"})
		if *failed == nil {
			*failed = err
		}
	}, nil
}
