package daemon_test

import (
	"sync"
	"testing"
	"time"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

func TestBytesArriveScatteredAndBecomeVisibleOnlyAtCommit(t *testing.T) {
	m := newPair(t)
	m.ready()
	got, err := m.pull()
	check(t, err)
	if got.Bytes != shape.Bytes() || got.Pieces != shape.Pieces() || got.Lane != "tcp" || got.Repulled != 0 || got.Manifest.IsZero() {
		t.Fatalf("%+v", got)
	}
	if !m.isEqual() {
		t.Fatal("bytes differ")
	}
	m.neverVisible()
	ans, err := m.commit()
	check(t, err)
	if ans.State != handoff.TargetCommitted || ans.Token != m.token {
		t.Fatalf("%+v", ans)
	}
	m.d.await(t, client.TargetCommitted, m.plan.Attempt)
	if !m.d.IsVisible(m.slot, m.plan.Attempt) {
		t.Fatal("the flag page does not show the commit")
	}
}

func TestTheSourceIsFreedAtOnceAfterTheYes(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
	check(t, m.p.Freed(background(t), m.plan.Attempt, true))
	d, err := m.ph.control.Describe(background(t), true)
	check(t, err)
	if d.GetSourcesLive() != 0 || d.GetPinnedBlocks() != 0 || len(d.GetSources()) != 1 || !d.GetSources()[0].GetValidated() {
		t.Fatalf("%v", d)
	}
}

func TestPiecesArePulledWhileTheyAreAnnounced(t *testing.T) {
	m := newPair(t)
	m.open()
	var result client.PullResult
	var pullErr error
	var wg sync.WaitGroup
	wg.Go(func() { result, pullErr = m.pull() })
	for i := range shape.Pieces() {
		m.announce(i)
		eventually(t, "the piece landed", func() bool { return string(m.source(i)) == string(m.target(i)) })
	}
	m.neverVisible()
	check(t, m.seal())
	wg.Wait()
	check(t, pullErr)
	if result.Pieces != shape.Pieces() || !m.isEqual() {
		t.Fatalf("%+v", result)
	}
}

func TestTwoEnginesOfOneDaemonMoveWithoutASocket(t *testing.T) {
	h := startHost(t, "t1")
	m := newMove(t, h, attach(t, h.cfg.EngineSocket, "p1"), h, attach(t, h.cfg.EngineSocket, "d1"))
	m.ready()
	got, err := m.pull()
	check(t, err)
	if got.Lane != "local" || !m.isEqual() {
		t.Fatalf("%+v", got)
	}
	_, err = m.commit()
	check(t, err)
	m.d.await(t, client.TargetCommitted, m.plan.Attempt)
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
}

func TestEveryRepeatAnswersThePresentState(t *testing.T) {
	m := newPair(t)
	m.ready()
	first := m.token
	check(t, m.openTarget())
	if m.token != first {
		t.Fatal("a repeated open gave another token")
	}
	capability := string(m.capability)
	check(t, m.openSource())
	if string(m.capability) != capability {
		t.Fatal("a repeated open gave another capability")
	}
	check(t, m.seal())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := m.pull(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	again, err := m.pull()
	check(t, err)
	if again.Bytes != shape.Bytes() {
		t.Fatalf("a repeat forgot the result: %+v", again)
	}
	for range 3 {
		ans, err := m.commit()
		check(t, err)
		if ans.State != handoff.TargetCommitted {
			t.Fatalf("%+v", ans)
		}
	}
	for range 2 { // a commit is never taken back by an undo
		c, err := m.undo()
		check(t, err)
		if c.Target != handoff.TargetCommitted || c.Token != m.token {
			t.Fatalf("%+v", c)
		}
	}
	for range 2 {
		c, err := m.dh.control.Release(background(t), m.plan, m.plan.Attempt.Operation("release"), client.Sides{Target: true})
		check(t, err)
		if c.Target != handoff.TargetAborted || !c.Drained {
			t.Fatalf("%+v", c)
		}
	}
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	for range 2 {
		check(t, m.d.Freed(background(t), m.plan.Attempt, false))
	}
	_, err = m.commit()
	wantCode(t, err, handoff.CodeAborted)
	_, err = m.pull()
	wantCode(t, err, handoff.CodeCancelled, handoff.CodeAborted)
	for _, k := range []client.EventKind{client.TargetCommitted, client.TargetAborted, client.TargetDrained} {
		if n, _ := m.d.saw(k, m.plan.Attempt); n != 1 {
			t.Fatalf("%d × %s", n, k)
		}
	}
}

// sgl-project/sglang#30233: without P's seal, or without its yes, no commit.
func TestCommitComesOnlyAfterTheValidatedRead(t *testing.T) {
	m := newPair(t)
	unsealed := newMove(t, m.ph, m.p, m.dh, m.d)
	unsealed.open()
	unsealed.announce(all()...)
	pulled := unsealed.async()
	eventually(t, "every byte landed", func() bool {
		d, err := m.dh.control.Describe(background(t), true)
		check(t, err)
		return d.GetTargets()[0].GetState() == transferv1.TargetState_TARGET_STATE_LANDED
	})
	_, err := unsealed.commit()
	wantCode(t, err, handoff.CodeNotReady)
	check(t, unsealed.p.CloseSource(background(t), unsealed.plan.Attempt, handoff.CodeCancelled)) // the prefill was aborted
	wantCode(t, <-pulled, handoff.CodeCancelled)
	_, err = unsealed.commit()
	wantCode(t, err, handoff.CodeClosed)
	unsealed.neverVisible()
	m.ready()
	_, err = m.commit()
	wantCode(t, err, handoff.CodeNotReady)
	m.neverVisible()
}

func TestUndoBeforeOpenLeavesATombstone(t *testing.T) {
	m := newPair(t)
	c, err := m.undo()
	check(t, err)
	if c.Target != handoff.TargetClosed || !c.Drained {
		t.Fatalf("%+v", c)
	}
	wantCode(t, m.openTarget(), handoff.CodeClosed)
	_, err = m.ph.control.Undo(background(t), m.plan, "", client.Sides{Source: true})
	check(t, err)
	wantCode(t, m.openSource(), handoff.CodeClosed)
}

func TestAHigherEpochClosesAnUncommittedOne(t *testing.T) {
	m := newPair(t)
	m.ready()
	older := m.plan.Attempt
	next := newMove(t, m.ph, m.p, m.dh, m.d)
	next.plan.Attempt = handoff.Attempt{Handoff: older.Handoff, Epoch: 2, Nonce: 77}
	check(t, next.openTarget())
	if e := m.d.await(t, client.TargetClosed, older); e.Cause != handoff.CodeStaleEpoch {
		t.Fatalf("%+v", e)
	}
	m.d.await(t, client.TargetDrained, older)
	_, err := m.pull()
	wantCode(t, err, handoff.CodeStaleEpoch)
}

func TestDrainAnswersOnceNothingCanTouchTheMemory(t *testing.T) {
	m := newPair(t)
	m.ready()
	waited := make(chan error, 1)
	go func() {
		_, err := m.dh.control.Drain(background(t), m.plan, client.Sides{Target: true})
		waited <- err
	}()
	_, err := m.undo()
	check(t, err)
	check(t, <-waited)
}

func TestARenewalTellsWhatIsLost(t *testing.T) {
	t.Parallel()
	m := newPair(t, lease(shortLease))
	left := newMove(t, m.ph, m.p, m.dh, m.d)
	m.ready()
	left.ready()
	unknown := handoff.Attempt{Handoff: "nobody", Epoch: 1, Nonce: 1}
	lost, err := m.dh.control.Renew(background(t), []handoff.Attempt{m.plan.Attempt, unknown}, nil, time.Minute)
	check(t, err)
	if len(lost) != 1 || lost[0] != unknown {
		t.Fatal(lost)
	}
	m.d.await(t, client.TargetClosed, left.plan.Attempt) // without renewal it ends by itself
	lost, err = m.dh.control.Renew(background(t), []handoff.Attempt{left.plan.Attempt, m.plan.Attempt}, nil, time.Minute)
	check(t, err)
	if len(lost) != 1 || lost[0] != left.plan.Attempt {
		t.Fatal(lost)
	}
}
