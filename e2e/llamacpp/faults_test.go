package llamacpp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
)

const (
	retryPause = 200 * time.Millisecond
	longBytes  = 1600 // a prompt that takes P a while
	longAnswer = 40
	shortBytes = 500 // moved once it is sealed
	tries      = 4   // to change a byte in time
)

// Each process is killed (SIGKILL) as a phase begins. The client sees what the
// library says, or a typed refusal after a beginning of it.
func TestWhoeverIsKilledTheAnswerIsRightOrRefused(t *testing.T) {
	c := client(t)
	for i, cell := range []struct {
		victim string
		phase  fault.Phase
		whole  bool // nothing was told before: a second attempt must answer
	}{{"p1", fault.Prefill, true}, {"d1", fault.Prefill, true}, {"tp1", fault.Prefill, true}, {"td1", fault.Prefill, false},
		{"p1", fault.Commit, true}, {"d1", fault.Commit, false}, {"td1", fault.Commit, false},
		{"p1", fault.Decode, true}, {"d1", fault.Decode, false}, {"td1", fault.Decode, false}} {
		t.Run(cell.victim+" in "+cell.phase.Name, func(t *testing.T) {
			a, m := ask(text(i, longBytes), longAnswer), stage.Mark()
			struck, err := fault.Strike(within(t, answerWithin), stage, c, a, cell.phase, func(fleet.Event) error { return stage.Process(cell.victim).Kill() })
			if err != nil {
				t.Fatal(err)
			}
			check := honest
			if cell.whole {
				check = right
			}
			if err := check(t, a, struck.Answer); err != nil {
				t.Error(err)
			}
			oneOwner(t, m)
			t.Log(chaos.Verdict(struck.Answer), "after", len(fault.Prefilled(stage.Since(m))), "prefills")
			atRest(t)
			serves(t)
		})
	}
}

// The gateway is killed as a phase begins, and started again: its client, which asks
// again with its key, gets what the library says, once; or, when tokens of it may have
// been given and nobody holds them any more, a typed refusal.
func TestAKilledGatewaysClientIsAnsweredUnderItsKey(t *testing.T) {
	for i, phase := range []fault.Phase{fault.Reserve, fault.Prefill, fault.Transfer, fault.Commit, fault.Decode} {
		t.Run(phase.Name, func(t *testing.T) {
			a, m := ask(text(50+i, longBytes), longAnswer), stage.Mark()
			a.Key = phase.Name
			g := stage.Process("g1")
			struck, err := fault.Strike(within(t, answerWithin), stage, client(t), a, phase, func(fleet.Event) error { return g.Kill() })
			if err != nil {
				t.Fatal(err)
			}
			if struck.Broken == nil {
				t.Errorf("its connection did not break: %s", chaos.Verdict(struck.Answer))
			}
			if err := g.Start(within(t, restWithin)); err != nil {
				t.Fatal(err)
			}
			again, refused := client(t).Insist(within(t, answerWithin), a, answerWithin, retryPause)
			switch spent := again.Failure != nil && again.Failure.Code == handoff.CodeGone.String(); {
			case spent && (phase.Name == fault.Commit.Name || phase.Name == fault.Decode.Name):
			default:
				if err := right(t, a, again); err != nil {
					t.Error(err)
				}
			}
			oneOwner(t, m)
			t.Log(chaos.Verdict(again), "after", len(fault.Prefilled(stage.Since(m))), "prefills, refused", refused, "times before")
			atRest(t)
			serves(t)
		})
	}
}

// serves waits until no breaker keeps away from a pair.
func serves(t *testing.T) {
	t.Helper()
	if err := fault.Serves(within(t, restWithin), stage, client(t)); err != nil {
		t.Fatal(err)
	}
}

// The client leaves as a phase begins: memory is free again, and no token comes
// of it.
func TestAClientThatLeavesInAnyPhaseLeavesNothingBehind(t *testing.T) {
	c := client(t)
	for i, phase := range []fault.Phase{fault.Reserve, fault.Prefill, fault.Transfer, fault.Validated, fault.Commit, fault.Decode} {
		t.Run(phase.Name, func(t *testing.T) {
			ctx, leave := context.WithCancel(within(t, answerWithin))
			var left time.Time
			_, err := fault.Strike(ctx, stage, c, ask(text(100+i, longBytes), longAnswer), phase, func(fleet.Event) error {
				left = time.Now()
				leave()
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := stage.MemoryFree(within(t, restWithin), restWithin); err != nil {
				t.Error(err)
			}
			t.Logf("memory was free %s after the client left", time.Since(left).Round(time.Millisecond))
			atRest(t)
		})
	}
}

// libllama would load either of these states without a word.
func TestAChangedByteIsNeverDecoded(t *testing.T) {
	// D's daemon sleeps until P has sealed, and then reads what was changed since.
	t.Run("at P, on its way", func(t *testing.T) {
		changed(t, func(ctx context.Context, m fleet.Mark, a handoff.Attempt) error {
			return asleep("td1", func() error {
				if err := state(ctx, m, a, "source", handoff.SourceSealed.String()); err != nil {
					return err
				}
				return chaos.Corrupt(stage.Process("p1").PID(), "p1")
			})
		})
	})
	// Then D itself sleeps, until its daemon has verified and committed, and loads
	// what was changed since.
	t.Run("at D, after its daemon checked it", func(t *testing.T) {
		changed(t, func(ctx context.Context, m fleet.Mark, a handoff.Attempt) error {
			err := asleep("td1", func() error {
				if err := state(ctx, m, a, "source", handoff.SourceSealed.String()); err != nil {
					return err
				}
				return stage.Process("d1").Pause()
			})
			if err == nil {
				err = state(ctx, m, a, "target", handoff.TargetCommitted.String())
			}
			if err == nil {
				err = chaos.Corrupt(stage.Process("d1").PID(), "d1")
			}
			return errors.Join(err, stage.Process("d1").Resume())
		})
	})
}

// asleep stops a process while f runs.
func asleep(name string, f func() error) error {
	p := stage.Process(name)
	if err := p.Pause(); err != nil {
		return err
	}
	return errors.Join(f(), p.Resume())
}

// errMissed says that the attempt was over before it came so far.
var errMissed = errors.New("the attempt was over before")

// state waits until one machine of an attempt is in a state.
func state(ctx context.Context, m fleet.Mark, a handoff.Attempt, machine, to string) error {
	e, err := stage.Await(ctx, m, func(e fleet.Event) bool {
		over := e.Attempt == a && (e.Became("target", handoff.TargetClosed.String()) || e.Became("target", handoff.TargetAborted.String()))
		return e.Attempt == a && e.Became(machine, to) || over || e.Attempt.Handoff == a.Handoff && e.Attempt.Epoch > a.Epoch
	})
	if err == nil && !(e.Attempt == a && e.Became(machine, to)) {
		err = errMissed
	}
	return err
}

// changed has a handoff's state changed by change, which begins once P computes
// and D holds room. On a busy machine the others may not wait for who sleeps:
// then it is tried again.
func changed(t *testing.T, change func(context.Context, fleet.Mark, handoff.Attempt) error) {
	t.Helper()
	for try := range tries {
		a, m := ask(text(200+try, shortBytes), 12), stage.Mark()
		ctx := within(t, answerWithin)
		struck, err := fault.Strike(ctx, stage, client(t), a, fault.Prefill, func(e fleet.Event) error {
			if err := state(ctx, m, e.Attempt, "target", handoff.TargetOpened.String()); err != nil {
				return err
			}
			return change(ctx, m, e.Attempt)
		})
		missed := errors.Is(err, errMissed)
		if err != nil && !missed {
			t.Fatal(err)
		}
		if err := honest(t, a, struck.Answer); err != nil {
			t.Error(err)
		}
		events := stage.Since(m)
		prefills := len(fault.Prefilled(events))
		t.Log(chaos.Verdict(struck.Answer), "after", prefills, "prefills; missed:", missed)
		oneOwner(t, m)
		atRest(t)
		// For damage the gateway keeps away from a pair for minutes; a new life of it does not.
		if err := stage.Process("g1").Restart(within(t, restWithin)); err != nil {
			t.Fatal(err)
		}
		serves(t)
		if missed {
			continue
		}
		switch {
		case struck.Failure == nil && prefills < 2:
			t.Errorf("whole after one prefill: the changed bytes were decoded, or never looked at; %v", events)
		case struck.Failure != nil && struck.Text != "":
			t.Errorf("%q came before the refusal", struck.Text)
		}
		return
	}
	t.Errorf("in %d tries nothing was changed in time: this run shows nothing", tries)
}
