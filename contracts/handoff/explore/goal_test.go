package explore

import (
	"strings"
	"testing"
)

// A world in which nothing can go right satisfies every invariant. So what the
// protocol is for must be reachable, faults included.
func TestTheWorldCanDoWhatItIsFor(t *testing.T) {
	for _, g := range []struct {
		sc   Scenario
		goal func(*world) bool
	}{
		{Scenario{Name: "a stream is delivered and nothing is left"}, func(w *world) bool { return w.got == bit(e1) && w.clean() }},
		{Scenario{Name: "epoch 2 is delivered after a lost epoch 1", Quick: true, Quicker: true}, func(w *world) bool { return w.got == bit(e2) && w.clean() }},
		{Scenario{Name: "D's host dies with e1 visible: e2 is delivered", Quick: true, Quicker: true, Begin: delivered, Faults: RestartHost},
			func(w *world) bool { return w.ever&bit(e1) != 0 && w.got == bit(e2) }},
		{Scenario{Name: "gateway 0 dies, the client comes again: e2 is delivered through gateway 1", Readers: true, Quick: true, Quicker: true, Begin: append(taken[:len(taken):len(taken)], actFault, actFault, actName), Faults: Kill | Takeover | Reattach},
			func(w *world) bool { return w.ever&bit(e1) != 0 && w.got == bit(e2) && w.conn == g1 }},
		{Scenario{Name: "gateway 0 dies and does not answer; the client comes again while that is waited for: e2 is delivered", Readers: true, Quick: true, Quicker: true,
			Begin: append(taken[:len(taken):len(taken)], actFault, actSilent, actSilent, actSilent, actFault, actName, actAwaited), Faults: Kill | Takeover | Reattach},
			func(w *world) bool { return w.ever&bit(e1) != 0 && w.got == bit(e2) && w.conn == g1 }},
		{Scenario{Name: "e1 is delivered through gateway 1 after a re-attach", Quick: true, Begin: delivered, Faults: Reattach},
			func(w *world) bool { return w.got == bit(e1) && w.conn == g1 }},
		{Scenario{Name: "a takeover adopts the commit", Quick: true, Begin: taken, Faults: Takeover}, func(w *world) bool { return w.got == bit(e1) && w.clean() }},
		{Scenario{Name: "a cancel comes after the commit", Quick: true, Begin: delivered, Faults: Cancel}, func(w *world) bool { return w.cancelled && w.ever == bit(e1) && w.got == 0 && w.clean() }},
		{Scenario{Name: "a cancel comes before the commit", Quick: true, Begin: delivered, Faults: Cancel}, func(w *world) bool { return w.cancelled && w.ever == 0 && w.clean() }},
		{Scenario{Name: "a restarted TD goes on with what it adopted", Quick: true, Begin: delivered, Faults: RestartTD},
			func(w *world) bool { return w.td[d0].Incarnation == 2 && w.got == bit(e1) && w.clean() }},
		{Scenario{Name: "a corrupted piece is pulled again", Fine: true, Begin: []actKind{actOpen, actPrefill, actAnnounce, actAnnounce, actSeal}, Faults: Corrupt},
			func(w *world) bool { return w.left&Corrupt == 0 && w.ever&bit(e1) != 0 }},
		{Scenario{Name: "the rival head start wins", Quick: true, TwoGateways: true}, func(w *world) bool { return int(w.winner) == e1b && w.got == bit(e1b) }},
		{Scenario{Name: "a reset run ends without a second plan", Quick: true, Quicker: true, Begin: replanned, Faults: Reset}, func(w *world) bool { return w.reset && w.clean() }},
	} {
		t.Run(g.sc.Name, func(t *testing.T) {
			r := run(g.sc, 60_000, g.goal)
			t.Logf("%d states\n%s", r.States, strings.Join(r.Trace, "\n"))
			if r.Violation != reached {
				t.Fatalf("not reached: %s", r)
			}
		})
	}
}
