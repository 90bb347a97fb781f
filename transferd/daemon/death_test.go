package daemon_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

func TestARestartedSourceRefusesOldGrantsAtOnceAndServesNewOnes(t *testing.T) {
	m := newPair(t)
	m.ready()
	before := m.ph.Incarnation()
	m.ph.restart(t)
	_, err := m.pull()
	wantCode(t, err, handoff.CodeStaleIncarnation) // no deadline that passed
	e := m.p.await(t, client.Reattached, handoff.Attempt{})
	if e.Incarnation != before+1 {
		t.Fatalf("%+v", e)
	}
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
	next := newMove(t, m.ph, m.p, m.dh, m.d)
	next.ready()
	_, err = next.pull()
	check(t, err)
	_, err = next.commit()
	check(t, err)
}

func TestASourceThatDiesDuringTheReadIsGivenUp(t *testing.T) {
	m := newPair(t, hasty)
	m.open()
	m.announce(0)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	check(t, m.ph.Close())
	wantCode(t, <-pulled, handoff.CodeProgress, handoff.CodeStaleIncarnation)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
}

func TestARestartedTargetAdoptsWhatIsVisibleAndNothingElse(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	other := newMove(t, m.ph, m.p, m.dh, m.d)
	other.ready()
	_, err = other.pull()
	check(t, err)

	before := m.dh.Incarnation()
	m.dh.restart(t)
	e := m.d.await(t, client.Reattached, handoff.Attempt{})
	if e.Incarnation != before+1 || len(e.Adopted) != 1 || e.Adopted[0] != m.plan.Attempt || len(e.Closed) != 1 || e.Closed[0] != other.plan.Attempt {
		t.Fatalf("%+v", e)
	}
	m.d.await(t, client.TargetDrained, other.plan.Attempt)
	if !m.d.IsVisible(m.slot, m.plan.Attempt) || m.d.IsVisible(other.slot, other.plan.Attempt) {
		t.Fatal("the flag page differs from what was committed")
	}
	for range 2 { // the repeat of the commit of the life before
		ans, err := m.commit()
		check(t, err)
		if ans.State != handoff.TargetCommitted || ans.Token != m.token {
			t.Fatalf("%+v", ans)
		}
	}
	_, err = other.commit()
	wantCode(t, err, handoff.CodeStaleIncarnation)
	_, err = other.undo()
	wantCode(t, err, handoff.CodeStaleIncarnation)

	check(t, m.d.FinishTarget(background(t), m.plan.Attempt))
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	check(t, m.d.Freed(background(t), m.plan.Attempt, false))
	check(t, m.d.Freed(background(t), other.plan.Attempt, false))
}

func TestNothingIsAnsweredBeforeTheFlagPageIsAdopted(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	check(t, m.dh.Close()) // first the daemon dies, then its engine is too slow to come back
	m.d.die(t)
	m.dh.start(t)
	for _, ask := range []func() error{
		func() error { _, err := m.undo(); return err },
		func() error { _, err := m.commit(); return err },
		func() error { _, err := m.pull(); return err },
		func() error { return m.renewTarget() },
	} {
		wantCode(t, ask(), handoff.CodeUnavailable)
	}
	attach(t, m.dh.cfg.EngineSocket, m.d.id) // an engine that lost its memory: nothing was visible in it
	_, err = m.undo()
	wantCode(t, err, handoff.CodeStaleIncarnation)
}

func TestAnEngineThatDiesAbortsWhatItHadVisible(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	open := newMove(t, m.ph, m.p, m.dh, m.d)
	open.ready()
	m.d.die(t)
	eventually(t, "the engine is gone", func() bool {
		d, err := m.dh.control.Describe(background(t), false)
		check(t, err)
		return len(d.GetEngines()) == 0 && d.GetTargetsLive() == 0 && d.GetRegisteredBytes() == 0
	})
	c, err := m.dh.control.Undo(background(t), m.plan, "", client.Sides{Target: true})
	check(t, err)
	if c.Target != handoff.TargetAborted || !c.Drained {
		t.Fatalf("%+v", c)
	}
	_, err = open.pull()
	wantCode(t, err, handoff.CodeEngine)
	again := attach(t, m.dh.cfg.EngineSocket, m.d.id)
	next := newMove(t, m.ph, m.p, m.dh, again)
	next.ready()
	_, err = next.pull()
	check(t, err)
}

func TestAnEngineThatDiesDuringThePullEndsItAndItsMemoryIsUnmapped(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	m.d.die(t)
	wantCode(t, <-pulled, handoff.CodeEngine)
	attach(t, m.dh.cfg.EngineSocket, m.d.id)
}

func TestASecondEngineOfTheSameNameWaitsForTheFirstToLeave(t *testing.T) {
	h := startHost(t, "t1")
	first := attach(t, h.cfg.EngineSocket, "p1")
	var second *engine
	var wg sync.WaitGroup
	wg.Go(func() { second = attach(t, h.cfg.EngineSocket, "p1") })
	eventuallyAfter(t, 50*time.Millisecond)
	d, err := h.control.Describe(background(t), false)
	check(t, err)
	if len(d.GetEngines()) != 1 {
		t.Fatalf("%v", d)
	}
	first.die(t)
	wg.Wait()
	if second.Incarnation() != h.Incarnation() {
		t.Fatal(second.Incarnation())
	}
}
