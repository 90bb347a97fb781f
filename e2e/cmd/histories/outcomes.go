package main

import (
	"context"
	"errors"
	"time"

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
	strike func(ctx context.Context, f *fleet.Fleet, leave func()) error
}

func leave(_ context.Context, _ *fleet.Fleet, leave func()) error {
	leave()
	return nil
}

func kill(names ...string) func(context.Context, *fleet.Fleet, func()) error {
	return func(_ context.Context, f *fleet.Fleet, _ func()) error {
		var failed []error
		for _, n := range names {
			failed = append(failed, f.Process(n).Kill())
		}
		return errors.Join(failed...)
	}
}

// pause holds processes past the lease.
func pause(names ...string) func(context.Context, *fleet.Fleet, func()) error {
	return func(ctx context.Context, f *fleet.Fleet, _ func()) error {
		var failed []error
		for _, n := range names {
			failed = append(failed, f.Process(n).Pause())
		}
		select {
		case <-time.After(lease + lease/2):
		case <-ctx.Done():
		}
		for _, n := range names {
			failed = append(failed, f.Process(n).Resume())
		}
		return errors.Join(failed...)
	}
}

func restart(name string) func(context.Context, *fleet.Fleet, func()) error {
	return func(ctx context.Context, f *fleet.Fleet, _ func()) error { return f.Process(name).Restart(ctx) }
}

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
	{name: "worker-paused-past-the-lease", record: "request", prompt: long, phase: &fault.Transfer, strike: pause("g1")},
	{name: "p-paused-past-the-progress-deadline", record: "request", prompt: long, phase: &fault.Transfer, strike: pause("p1", "tp1")},
	{name: "deadline-in-prefill", record: "request", prompt: long, change: deadline(150 * time.Millisecond)},
	{name: "store-emptied-in-transfer", record: "request", prompt: long, phase: &fault.Transfer,
		strike: func(ctx context.Context, f *fleet.Fleet, _ func()) error { return f.Empty(ctx) }},
}
