package daemon_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// aws-samples/aws-do-eks#84, vllm-project/vllm#21570 (R-02, V-01, V-02), with the two
// tests below: the lease lapses before, during and after the read; never a commit.
func TestALeaseThatLapsesBeforeTheReadRefusesIt(t *testing.T) {
	t.Parallel()
	m := newPair(t, lease(shortLease))
	m.ready()
	m.p.await(t, client.SourceClosed, m.plan.Attempt)
	check(t, m.renewTarget())
	_, err := m.pull()
	wantCode(t, err, handoff.CodeLease, handoff.CodeClosed)
	m.neverVisible()
}

func (m *move) renewTarget() error {
	_, err := m.dh.control.Renew(background(m.t), []handoff.Attempt{m.plan.Attempt}, nil, time.Minute)
	return err
}

func TestAGrantThatEndsDuringTheReadIsNeverValidated(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0, 1)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	check(t, m.p.CloseSource(background(t), m.plan.Attempt, handoff.CodeLease))
	wantCode(t, <-pulled, handoff.CodeLease)
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	m.neverVisible()
}

func TestAGrantThatEndsAfterTheReadAndBeforeTheQuestionIsNeverValidated(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(all()...)
	pulled := m.async()
	eventually(t, "everything landed", func() bool { return m.isEqual() })
	_, err := m.ph.control.Undo(background(t), m.plan, "", client.Sides{Source: true})
	check(t, err)
	wantCode(t, m.seal(), handoff.CodeClosed)
	wantCode(t, <-pulled, handoff.CodeClosed)
	m.neverVisible()
}

func TestADecodeLeaseThatLapsesAbortsTheTarget(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.dh.control.Commit(background(t), m.plan, m.token, m.plan.Attempt.Operation("commit"), handoff.LeaseMin)
	check(t, err)
	e := m.d.await(t, client.TargetAborted, m.plan.Attempt)
	if e.Cause != handoff.CodeLease || m.d.IsVisible(m.slot, m.plan.Attempt) {
		t.Fatalf("%+v", e)
	}
	_, err = m.commit()
	wantCode(t, err, handoff.CodeAborted)
}

func TestAnUndoStopsARunningPullAndDrains(t *testing.T) {
	m := newPair(t)
	m.open()
	m.announce(0)
	pulled := m.async()
	eventually(t, "the first piece landed", func() bool { return bytes.Equal(m.source(0), m.target(0)) })
	_, err := m.undo()
	check(t, err)
	wantCode(t, <-pulled, handoff.CodeClosed)
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
	// The grant outlives its reader: another connection may still read, until TP is told.
	c, err := m.ph.control.Release(background(t), m.plan, "", client.Sides{Source: true})
	check(t, err)
	if c.Source != handoff.SourceClosed || c.Validated {
		t.Fatalf("%+v", c)
	}
	m.p.await(t, client.SourceDrained, m.plan.Attempt)
}

func TestANewerReaderTakesTheDecodeOver(t *testing.T) {
	m := newPair(t)
	m.ready()
	_, err := m.pull()
	check(t, err)
	_, err = m.commit()
	check(t, err)
	for number := range uint32(4) {
		got, err := m.dh.control.RenewDecode(background(t), []handoff.Attempt{m.plan.Attempt}, handoff.Reader{Number: number}, 0)
		check(t, err)
		if len(got) != 0 {
			t.Fatalf("reader %d: %v", number, got)
		}
	}
	got, err := m.dh.control.RenewDecode(background(t), []handoff.Attempt{m.plan.Attempt}, handoff.Reader{Number: 2}, 0)
	check(t, err)
	if len(got) != 1 {
		t.Fatal("an older reader renewed a decode")
	}
}
