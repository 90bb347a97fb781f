package main

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Sizes: a long prompt takes P 300 ms, so that each phase can be struck.
const (
	rate   = 2000 // prompt tokens a second
	chunk  = 64
	step   = 10 * time.Millisecond
	lease  = 2 * time.Second
	long   = 598
	short  = 98
	slow   = 3998 // 2 s: prefill and transfer are normal activities
	tokens = 40
)

// outcome is one way to end. A struck one is struck in its phase.
type outcome struct {
	name   string
	record string
	prompt int
	change func(*traffic.Ask)
	phase  *fault.Phase
	strike strike
}

// strike is what happens to a request in its phase.
type strike func(context.Context, struck) error

type struck struct {
	*fleet.Fleet
	id    string // of the handoff; empty in the decode phase
	leave func() // of the client
}

func leave(_ context.Context, s struck) error {
	s.leave()
	return nil
}

func kill(names ...string) strike {
	return func(_ context.Context, s struck) error {
		var failed []error
		for _, n := range names {
			failed = append(failed, s.Process(n).Kill())
		}
		return errors.Join(failed...)
	}
}

// pause holds processes past the lease.
func pause(names ...string) strike {
	return func(ctx context.Context, s struck) error {
		var failed []error
		for _, n := range names {
			failed = append(failed, s.Process(n).Pause())
		}
		select {
		case <-time.After(lease + lease/2):
		case <-ctx.Done():
		}
		for _, n := range names {
			failed = append(failed, s.Process(n).Resume())
		}
		return errors.Join(failed...)
	}
}

func restart(name string) strike {
	return func(ctx context.Context, s struck) error { return s.Process(name).Restart(ctx) }
}

// operated has an operator act, through the gateway that does not serve the client.
func operated(do func(context.Context, operatev1.OperatorClient, *operatev1.SteerRequest) error) strike {
	return func(ctx context.Context, s struck) error {
		conn, err := grpc.NewClient(s.GRPC["g2"], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		op, ask := operatev1.NewOperatorClient(conn), &operatev1.SteerRequest{Handoff: s.id, Reason: "recorded"}
		err = do(ctx, op, ask)
		for handoff.CodeOf(rpc.FromStatus(err)) == handoff.CodeGone && ctx.Err() == nil { // a head start is ahead of its history
			err = do(ctx, op, ask)
		}
		return err
	}
}

func replace(ctx context.Context, op operatev1.OperatorClient, r *operatev1.SteerRequest) error {
	_, err := op.Replace(ctx, r)
	return err
}

func replaceByName(ctx context.Context, op operatev1.OperatorClient, r *operatev1.SteerRequest) error {
	r.Prefill, r.Decode = "p2", "d2"
	return replace(ctx, op, r)
}

// pin names the engines of the epochs to come; unpin takes that back.
func pin(ctx context.Context, op operatev1.OperatorClient, r *operatev1.SteerRequest) error {
	r.Prefill, r.Decode = "p2", "d2"
	_, err := op.Pin(ctx, r)
	return err
}

func unpin(ctx context.Context, op operatev1.OperatorClient, r *operatev1.SteerRequest) error {
	if err := pin(ctx, op, r); err != nil {
		return err
	}
	r.Prefill, r.Decode = "", ""
	_, err := op.Pin(ctx, r)
	return err
}

// then strikes one after the other.
func then(all ...strike) strike {
	return func(ctx context.Context, s struck) error {
		for _, one := range all {
			if err := one(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func reset(ctx context.Context, s struck) error {
	return behindHeadStart(ctx, func() error { return s.Reset(ctx, fleet.DefaultTenant, s.id) })
}

// durable waits until the handoff has a history.
func durable(ctx context.Context, s struck) error {
	return behindHeadStart(ctx, func() error {
		_, err := s.History(ctx, fleet.DefaultTenant, s.id)
		return err
	})
}

// behindHeadStart does what needs a history; the head start is ahead of it.
func behindHeadStart(ctx context.Context, do func() error) error {
	err := do()
	for err != nil && ctx.Err() == nil {
		time.Sleep(step)
		err = do()
	}
	return err
}

func resume(a *traffic.Ask) { a.Resume = true }

func deadline(d time.Duration) func(*traffic.Ask) { return func(a *traffic.Ask) { a.Deadline = d } }

var outcomes = []outcome{
	{name: "completed-short", record: "request", prompt: short},
	{name: "completed-long", record: "request", prompt: long},
	{name: "completed-slow", record: "request", prompt: slow},
	{name: "completed-keyed", record: "request", prompt: short, change: func(a *traffic.Ask) { a.Key = "recorded" }},
	{name: "completed-across-temporal-restart", record: "request", prompt: long, phase: &fault.Prefill, strike: restart(fleet.Temporal)},
	{name: "handoff-completed", record: "handoff", prompt: short},
	{name: "handoff-p-died-in-transfer", record: "handoff", prompt: long, phase: &fault.Transfer, strike: kill("p1")},
	{name: "handoff-left-in-decode", record: "handoff", prompt: long, phase: &fault.Decode, strike: leave},

	{name: "left-in-reserve", record: "request", prompt: long, phase: &fault.Reserve, strike: leave},
	{name: "left-in-prefill", record: "request", prompt: long, phase: &fault.Prefill, strike: leave},
	{name: "left-in-slow-prefill", record: "request", prompt: slow, phase: &fault.Prefill, strike: leave},
	{name: "left-in-transfer", record: "request", prompt: long, phase: &fault.Transfer, strike: leave},
	{name: "left-when-validated", record: "request", prompt: long, phase: &fault.Validated, strike: leave},
	{name: "left-at-commit", record: "request", prompt: long, phase: &fault.Commit, strike: leave},
	{name: "left-in-decode", record: "request", prompt: long, phase: &fault.Decode, strike: leave},

	{name: "p-died-in-prefill", record: "request", prompt: long, phase: &fault.Prefill, strike: kill("p1")},
	{name: "p-died-in-slow-prefill", record: "request", prompt: slow, phase: &fault.Prefill, strike: kill("p1")},
	{name: "p-died-in-transfer", record: "request", prompt: long, phase: &fault.Transfer, strike: kill("p1")},
	{name: "tp-died-in-transfer", record: "request", prompt: long, phase: &fault.Transfer, strike: kill("tp1")},
	{name: "d-died-in-prefill", record: "request", prompt: long, phase: &fault.Prefill, strike: kill("d1")},
	{name: "d-died-in-transfer", record: "request", prompt: long, phase: &fault.Transfer, strike: kill("d1")},
	{name: "td-died-in-transfer", record: "request", prompt: long, phase: &fault.Transfer, strike: kill("td1")},
	{name: "d-died-at-commit", record: "request", prompt: long, phase: &fault.Commit, strike: kill("d1")},
	{name: "td-died-at-commit", record: "request", prompt: long, change: deadline(5 * time.Second), phase: &fault.Commit, strike: kill("td1")},
	{name: "d-died-in-decode", record: "request", prompt: long, phase: &fault.Decode, strike: kill("d1")},
	{name: "both-p-died", record: "request", prompt: long, change: deadline(5 * time.Second), phase: &fault.Prefill, strike: kill("p1", "p2")},
	{name: "both-d-died", record: "request", prompt: long, change: deadline(5 * time.Second), phase: &fault.Prefill, strike: kill("d1", "d2")},
	{name: "host-of-d-died-in-transfer", record: "request", prompt: long, phase: &fault.Transfer, strike: kill("d1", "td1")},
	{name: "host-of-p-died-in-transfer", record: "request", prompt: long, phase: &fault.Transfer, strike: kill("p1", "tp1")},

	{name: "worker-died-in-prefill", record: "request", prompt: long, phase: &fault.Prefill, strike: kill("g1")},
	{name: "worker-died-at-commit", record: "request", prompt: long, phase: &fault.Commit, strike: kill("g1")},
	{name: "worker-died-in-decode", record: "request", prompt: long, phase: &fault.Decode, strike: kill("g1")},
	{name: "all-died-at-commit", record: "request", prompt: long, change: deadline(5 * time.Second), phase: &fault.Commit, strike: kill("g1", "p1", "tp1", "d1", "td1")},
	{name: "worker-paused-past-the-lease", record: "request", prompt: long, phase: &fault.Transfer, strike: pause("g1")},
	{name: "p-paused-past-the-progress-deadline", record: "request", prompt: long, phase: &fault.Transfer, strike: pause("p1", "tp1")},
	{name: "deadline-in-prefill", record: "request", prompt: long, change: deadline(150 * time.Millisecond)},
	{name: "store-emptied-in-transfer", record: "request", prompt: long, phase: &fault.Transfer,
		strike: func(ctx context.Context, s struck) error { return s.Empty(ctx) }},
	{name: "gateway-died-and-the-deadline-passed", record: "request", prompt: slow, change: deadline(2500 * time.Millisecond), phase: &fault.Prefill, strike: then(durable, kill("g1"))},
	{name: "reset-in-slow-prefill", record: "request", prompt: slow, phase: &fault.Prefill, strike: reset},

	{name: "resumed", record: "request", prompt: long, change: resume, phase: &fault.Decode, strike: kill("d1")},
	{name: "not-resumed", record: "request", prompt: long, change: resume, phase: &fault.Decode, strike: kill("d1", "d2")},
	{name: "replaced-in-slow-prefill", record: "request", prompt: slow, phase: &fault.Prefill, strike: operated(replace)},
	{name: "replaced-by-name-in-slow-prefill", record: "request", prompt: slow, phase: &fault.Prefill, strike: operated(replaceByName)},
	{name: "pinned-in-slow-prefill", record: "request", prompt: slow, phase: &fault.Prefill, strike: then(operated(pin), kill("p1"))},
	{name: "unpinned-in-slow-prefill", record: "request", prompt: slow, phase: &fault.Prefill, strike: then(operated(unpin), kill("p1"))},
}
