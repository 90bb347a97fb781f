package ledgertest

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

func claimAndReserveIsBothOrTells(t *testing.T, w World) {
	ctx := t.Context()
	w.built(t, 10)
	for range 2 { // the second is the repeat
		a, err := w.Ledger.ClaimAndReserve(ctx, claimOf("h1", "g1"), reserveOf(attempt(1), 6))
		must(t, err)
		equal(t, "mine", a.Mine, true)
		equal(t, "used", w.used(t), 6)
	}
	other, err := w.Ledger.ClaimAndReserve(ctx, claimOf("h1", "g2"), reserveOf(attempt(2), 1))
	must(t, err)
	equal(t, "other's answer", other, ledger.ClaimAnswer{Handoff: "h1", Owner: "g1", State: ledger.StateClaimed})
	equal(t, "used after another's claim", w.used(t), 6)

	c := claimOf("h1", "g1")
	c.Body = otherBody
	a, err := w.Ledger.ClaimAndReserve(ctx, c, reserveOf(attempt(3), 1))
	wantCode(t, err, handoff.CodeKeyReused)
	equal(t, "answer", a, ledger.ClaimAnswer{})
	equal(t, "used after a refused claim", w.used(t), 6)

	c = claimOf("h2", "g1")
	c.Key = "k2"
	a, err = w.Ledger.ClaimAndReserve(ctx, c, reserveOf(attempt(4), 5))
	wantCode(t, err, handoff.CodeCapacity)
	equal(t, "claim that stands", a, ledger.ClaimAnswer{Mine: true, Handoff: "h2", Owner: "g1", State: ledger.StateClaimed})
	must(t, w.Ledger.Unclaim(ctx, "t", "k2", "h2"))
	_, err = w.Ledger.ClaimAndReserve(ctx, c, reserveOf(attempt(5), 1))
	wantCode(t, err, handoff.CodeClosed)
	equal(t, "used after a closed claim", w.used(t), 6)
}

func finishReleasesAndSettles(t *testing.T, w World) {
	ctx := t.Context()
	w.built(t, 10)
	_, err := w.Ledger.ClaimAndReserve(ctx, claimOf("h1", "g1"), reserveOf(attempt(1), 6))
	must(t, err)
	for range 2 {
		must(t, w.Ledger.Finish(ctx, settleOf("h1", ledger.OutcomeCompleted), engine, attempt(1)))
	}
	equal(t, "used", w.used(t), 0)
	a, err := w.Ledger.ClaimAndReserve(ctx, claimOf("h1", "g1"), reserveOf(attempt(2), 1))
	must(t, err)
	equal(t, "answer", a, ledger.ClaimAnswer{Mine: true, Handoff: "h1", Owner: "g1", State: ledger.StateSettled, Outcome: ledger.OutcomeCompleted})
	equal(t, "used after a settled claim", w.used(t), 0)

	// A settlement that is refused keeps no blocks.
	must(t, w.Ledger.Reserve(ctx, reserveOf(attempt(3), 2)))
	err = w.Ledger.Finish(ctx, settleOf("h1", "stream_broken"), engine, attempt(3))
	wantCode(t, err, handoff.CodeConflict)
	equal(t, "used after a refused settlement", w.used(t), 0)
}

func registryKnowsWhoServes(t *testing.T, w World) {
	ctx := t.Context()
	d2 := Seen("d2", 9)
	d2.Load, d2.Layout, d2.Cordoned = nil, nil, true
	must(t, w.Ledger.Register(ctx, d2, short))
	must(t, w.Ledger.Register(ctx, Seen(engine, 3), long))
	must(t, w.rebuild(t, 10, map[handoff.Attempt]uint32{attempt(1): 4}))
	all, err := w.Ledger.Engines(ctx)
	must(t, err)
	equal(t, "engines", len(all), 2)
	e := all[0]
	equal(t, "load", *e.Load, *Seen(engine, 3).Load)
	equal(t, "layout", string(e.Layout), string(Seen(engine, 3).Layout))
	equal(t, "rate", e.PrefillTokensPerSecond, 1234.5)
	equal(t, "built", e.Built, true)
	equal(t, "used", e.Used, 4)
	equal(t, "promises", e.Promises, 1)
	equal(t, "unknown load", all[1].Load, nil)
	equal(t, "cordoned", all[1].Cordoned, true)
	equal(t, "built without a rebuild", all[1].Built, false)

	w.Advance(2 * short)
	all, err = w.Ledger.Engines(ctx)
	must(t, err)
	equal(t, "engines after one ended", len(all), 1)
	if all[0].Age < short {
		t.Fatalf("age %s after %s", all[0].Age, 2*short)
	}
	must(t, w.Ledger.Register(ctx, Seen(engine, 4), long)) // a new life of its node
	all, err = w.Ledger.Engines(ctx)
	must(t, err)
	equal(t, "built for another incarnation", all[0].Built, false)
	must(t, w.Ledger.Deregister(ctx, engine, 5))
	must(t, w.Ledger.Deregister(ctx, engine, 5))
	all, err = w.Ledger.Engines(ctx)
	must(t, err)
	equal(t, "engines after the last left", len(all), 0)
}

func staleProcessCannotRegister(t *testing.T, w World) {
	ctx := t.Context()
	e := Seen(engine, 3)
	must(t, w.Ledger.Register(ctx, e, long))
	e.ProcessIncarnation--
	wantCode(t, w.Ledger.Register(ctx, e, long), handoff.CodeStaleIncarnation)
	must(t, w.Ledger.Deregister(ctx, engine, e.ProcessIncarnation))
	all, err := w.Ledger.Engines(ctx)
	must(t, err)
	equal(t, "engines", len(all), 1)
}

func emptiedLedgerRefusesUntilRebuilt(t *testing.T, w World) {
	ctx := t.Context()
	w.built(t, 10)
	must(t, w.Ledger.Reserve(ctx, reserveOf(attempt(1), 6)))
	before, err := w.Ledger.Born(ctx)
	must(t, err)
	again, err := w.Ledger.Born(ctx)
	must(t, err)
	equal(t, "life", again, before)

	w.Empty()
	after, err := w.Ledger.Born(ctx)
	must(t, err)
	if after == before {
		t.Fatalf("emptied, yet still born %s", before)
	}
	wantCode(t, w.Ledger.Reserve(ctx, reserveOf(attempt(2), 6)), handoff.CodeUnavailable)
	lost, err := w.Ledger.Renew(ctx, engine, []handoff.Attempt{attempt(1)}, long)
	must(t, err)
	equal(t, "lost", len(lost), 1)
	must(t, w.Ledger.Release(ctx, engine, attempt(9))) // an undo is never refused

	must(t, w.Ledger.Register(ctx, Seen(engine, 3), long))
	all, err := w.Ledger.Engines(ctx)
	must(t, err)
	equal(t, "built", all[0].Built, false)
	must(t, w.rebuild(t, 10, map[handoff.Attempt]uint32{attempt(1): 6}))
	wantCode(t, w.Ledger.Reserve(ctx, reserveOf(attempt(2), 6)), handoff.CodeCapacity)
	must(t, w.Ledger.Reserve(ctx, reserveOf(attempt(2), 4)))
	equal(t, "used", w.used(t), 10)
}

// doneThenFailedIsHarmlessWhenRepeated gives each verb each fault, repeats it,
// and wants what one undisturbed call leaves.
func doneThenFailedIsHarmlessWhenRepeated(t *testing.T, w World) {
	l := w.Ledger
	verbs := []struct {
		name   string
		before func(context.Context) error
		call   func(context.Context) error
		used   uint32
		state  ledger.State
	}{
		{"claim", nil, func(c context.Context) error { _, err := l.Claim(c, claimOf("h1", "g1")); return err }, 0, ledger.StateClaimed},
		{"settle", nil, func(c context.Context) error { return l.Settle(c, settleOf("h1", "completed")) }, 0, ledger.StateSettled},
		{"unclaim", func(c context.Context) error { _, err := l.Claim(c, claimOf("h1", "g1")); return err },
			func(c context.Context) error { return l.Unclaim(c, "t", "k", "h1") }, 0, ""},
		{"reserve", nil, func(c context.Context) error { return l.Reserve(c, reserveOf(attempt(1), 6)) }, 6, ""},
		{"release", func(c context.Context) error { return l.Reserve(c, reserveOf(attempt(1), 6)) },
			func(c context.Context) error { return l.Release(c, engine, attempt(1)) }, 0, ""},
		{"renew", func(c context.Context) error { return l.Reserve(c, reserveOf(attempt(1), 6)) },
			func(c context.Context) error {
				_, err := l.Renew(c, engine, []handoff.Attempt{attempt(1)}, long)
				return err
			}, 6, ""},
		{"rebuild", nil, func(c context.Context) error {
			return l.Rebuild(c, ledger.RebuildRequest{Engine: engine, Incarnation: 3, Total: 10,
				Held: map[handoff.Attempt]uint32{attempt(1): 7}, Lease: long})
		}, 7, ""},
		{"claim and reserve", nil, func(c context.Context) error {
			_, err := l.ClaimAndReserve(c, claimOf("h1", "g1"), reserveOf(attempt(1), 6))
			return err
		}, 6, ledger.StateClaimed},
		{"finish", func(c context.Context) error { return l.Reserve(c, reserveOf(attempt(1), 6)) },
			func(c context.Context) error {
				return l.Finish(c, settleOf("h1", "completed"), engine, attempt(1))
			}, 0, ledger.StateSettled},
		{"register", nil, func(c context.Context) error { return l.Register(c, Seen(engine, 3), long) }, 0, ""},
		{"mark cancelled", nil, func(c context.Context) error { return l.MarkCancelled(c, "h1", time.Minute) }, 0, ""},
		{"deregister", func(c context.Context) error { return l.Register(c, Seen("d2", 3), long) },
			func(c context.Context) error { return l.Deregister(c, "d2", 5) }, 0, ""},
		{"born", nil, func(c context.Context) error { _, err := l.Born(c); return err }, 0, ""},
	}
	for _, v := range verbs {
		for _, fault := range []Fault{FaultNotDone, FaultDone, FaultTwice} {
			t.Run(v.name+" "+[...]string{"", "not done", "done", "twice"}[fault], func(t *testing.T) {
				w.Empty()
				w.built(t, 10)
				if v.before != nil {
					must(t, v.before(t.Context()))
				}
				w.Next(fault)
				err := v.call(t.Context())
				if fault == FaultTwice {
					must(t, err)
				} else {
					wantCode(t, err, handoff.CodeUnavailable)
				}
				must(t, v.call(t.Context()))
				equal(t, "used", w.used(t), v.used)
				equal(t, "claim's state", w.state(t), v.state)
				must(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(99), 10-v.used)))
				wantCode(t, w.Ledger.Reserve(t.Context(), reserveOf(attempt(98), 1)), handoff.CodeCapacity)
			})
		}
	}
}

// state is how another gateway sees the suite's key; empty when it is free.
func (w World) state(t *testing.T) ledger.State {
	t.Helper()
	a, err := w.Ledger.Claim(t.Context(), claimOf("h7", "g7"))
	must(t, err)
	if a.Mine {
		return ""
	}
	return a.State
}

func malformedIsRefused(t *testing.T, w World) {
	ctx := t.Context()
	w.built(t, 10)
	c := claimOf("h1", "g1")
	c.Key = ""
	_, err := w.Ledger.Claim(ctx, c)
	wantCode(t, err, handoff.CodeInvalid)
	_, err = w.Ledger.ClaimAndReserve(ctx, claimOf("h1", "g1"), reserveOf(attempt(0), 1))
	wantCode(t, err, handoff.CodeInvalid)
	wantCode(t, w.Ledger.Reserve(ctx, reserveOf(attempt(1), 0)), handoff.CodeInvalid)
	wantCode(t, w.Ledger.Release(ctx, "D1", attempt(1)), handoff.CodeInvalid)
	wantCode(t, w.Ledger.MarkCancelled(ctx, "h1", 0), handoff.CodeInvalid)
	_, err = w.Ledger.Renew(ctx, engine, make([]handoff.Attempt, ledger.MaxRenewals+1), long)
	wantCode(t, err, handoff.CodeTooLarge)
	e := Seen(engine, 0)
	wantCode(t, w.Ledger.Register(ctx, e, long), handoff.CodeInvalid)

	over, cancel := context.WithCancel(ctx)
	cancel()
	wantCode(t, w.Ledger.Reserve(over, reserveOf(attempt(1), 1)), handoff.CodeUnavailable)
	equal(t, "used", w.used(t), 0)
}
