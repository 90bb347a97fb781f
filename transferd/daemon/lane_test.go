package daemon_test

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/daemon"
)

// ai-dynamo/nixl#1754, #1385, #1628: what was required is used, or the pull fails
// before the first byte; never a slower lane in its stead.
func TestARequiredLaneThatIsNotThereFailsInsteadOfAnother(t *testing.T) {
	for require, want := range map[string]handoff.Code{"rdma": handoff.CodeMismatch, "nvlink": handoff.CodeMismatch, "local": handoff.CodeMismatch, "tcp": handoff.CodeNone} {
		t.Run(require, func(t *testing.T) {
			m := newPair(t)
			m.ready()
			spec := m.spec()
			spec.Require = require
			got, err := m.dh.control.Pull(background(t), spec, nil)
			if handoff.CodeOf(err) != want || err == nil && got.Lane != require {
				t.Fatalf("%+v, %v", got, err)
			}
			if want == handoff.CodeNone {
				return
			}
			m.neverVisible()
			d, err := m.dh.control.Describe(background(t), false)
			check(t, err)
			if d.GetPulledBytesTotal() != 0 {
				t.Fatal("bytes moved")
			}
			m.d.await(t, client.TargetDrained, m.plan.Attempt)
		})
	}
}

// ai-dynamo/nixl#1754: every report of a pull says which transport is really used, those
// of one that is still under way as well.
func TestEachReportOfAPullSaysItsLane(t *testing.T) {
	for _, lane := range []string{"local", "tcp"} {
		ph, dh := lanes[lane](t)
		m := newMove(t, ph, attach(t, ph.cfg.EngineSocket, "p2"), dh, attach(t, dh.cfg.EngineSocket, "d2"))
		m.open()
		m.announce(0, 1)
		reports, pulled := make(chan client.Progress, 1024), make(chan error, 1)
		var got client.PullResult
		go func() {
			var err error
			got, err = dh.control.Pull(background(t), m.spec(), func(p client.Progress) { reports <- p })
			pulled <- err
		}()
		for p := range reports {
			if p.Pieces == 2 && p.Lane == lane {
				break
			}
			if p.Pieces > 0 && p.Lane != lane {
				t.Fatalf("%s: %+v", lane, p)
			}
		}
		m.announce(all()[2:]...)
		check(t, m.seal())
		check(t, <-pulled)
		if got.Lane != lane {
			t.Fatalf("%s: %+v", lane, got)
		}
	}
}

func TestABrokenRailIsPassedOver(t *testing.T) {
	ph, p, dh, d := pair(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a rail that nobody answers on
	check(t, err)
	broken := l.Addr().String()
	check(t, l.Close())
	good := newRelay(t, ph.PeerAddress)
	for range 3 {
		m := newMove(t, ph, p, dh, d)
		m.ready()
		spec := m.spec()
		spec.SourceAddress = broken + "," + good.Addr().String()
		_, err := dh.control.Pull(background(t), spec, nil)
		check(t, err)
		if !m.isEqual() {
			t.Fatal("bytes differ")
		}
	}
}

func TestAPullWithoutChecksumsIsDeniedUnlessItsDaemonAllowsIt(t *testing.T) {
	log := &safeBuffer{}
	m := newPair(t, func(c *daemon.Config) { c.Audit = slog.New(slog.NewTextHandler(log, nil)) })
	m.ready()
	spec := m.spec()
	spec.Unchecked = true
	_, err := m.dh.control.Pull(background(t), spec, nil)
	wantCode(t, err, handoff.CodeDenied)
	eventually(t, "the refusal is in the audit", func() bool {
		return strings.Contains(log.String(), "act=refuse side=target event=refuse-pull handoff="+string(m.plan.Attempt.Handoff))
	})
	_, err = m.pull() // and it may still be pulled with them
	check(t, err)

	ph, p, dh, d := pair(t, func(c *daemon.Config) { c.Unchecked = true })
	allowed := newMove(t, ph, p, dh, d)
	allowed.ready()
	spec = allowed.spec()
	spec.Unchecked = true
	_, err = dh.control.Pull(background(t), spec, nil)
	check(t, err)
	if !allowed.isEqual() {
		t.Fatal("bytes differ")
	}
}
