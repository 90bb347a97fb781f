package native

import (
	"context"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/activities/engine/vllm/vllmtest"
	"github.com/surehand/surehand/contracts/handoff"
)

// In every phase a release ends what runs, and P holds nothing afterwards.
func TestACancelInEveryPhaseLeavesNothingBehind(t *testing.T) {
	gate := func() (chan struct{}, func()) { g := make(chan struct{}); return g, func() { close(g) } }
	for _, c := range []struct {
		phase string
		until func(x *run) func() // drives it there; gives what opens the gate again
		state handoff.TargetState
		p, d  vllmtest.Seen // what the engines must have counted; other fields are not looked at
	}{
		{"before P", func(x *run) func() { x.must(x.reserve); return func() {} }, handoff.TargetClosed, vllmtest.Seen{}, vllmtest.Seen{}},
		{"in P", func(x *run) func() {
			g, open := gate()
			x.rig.p[0].Set(func(f *vllmtest.Faults) { f.PrefillGate = g })
			x.must(x.reserve)
			go func() { _ = x.prefill() }()
			x.eventually("P computes", func() bool { return x.rig.p[0].Seen().Prefills == 1 })
			return open
		}, handoff.TargetClosed, vllmtest.Seen{Prefills: 1, Aborted: 1}, vllmtest.Seen{}},
		{"between P and D", func(x *run) func() { x.must(x.reserve, x.prefill, x.pull); return func() {} },
			handoff.TargetClosed, vllmtest.Seen{Prefills: 1, Released: 1}, vllmtest.Seen{Decodes: 1}}, // D never fetched from P: it is made to
		{"in the transfer", func(x *run) func() {
			g, open := gate()
			x.rig.d[0].Set(func(f *vllmtest.Faults) { f.TokenGate = g })
			x.d.fetched(x.p) // or it would be made to, behind that gate
			x.must(x.reserve, x.prefill, x.pull)
			x.attach()
			x.must(x.commit)
			x.eventually("D was asked", func() bool { return x.rig.d[0].Seen().Decodes == 1 })
			return open
		}, handoff.TargetAborted, vllmtest.Seen{Prefills: 1}, vllmtest.Seen{Decodes: 1, Aborted: 1}},
		{"in the decode", func(x *run) func() {
			g, open := gate()
			x.rig.d[0].Set(func(f *vllmtest.Faults) { f.RestGate = g })
			x.must(x.reserve, x.prefill, x.pull)
			x.attach()
			x.must(x.commit)
			x.eventually("D decodes", func() bool { return x.got() != "" })
			return open
		}, handoff.TargetAborted, vllmtest.Seen{Prefills: 1, Released: 1}, vllmtest.Seen{Decodes: 1, Aborted: 1}},
	} {
		t.Run(c.phase, func(t *testing.T) {
			r := pair(t)
			x := r.attempt(1, 0, 0)
			open := c.until(x)
			defer open()
			ans, err := x.undo(true)
			if err != nil || ans.Target != c.state {
				t.Fatal(ans, err)
			}
			if again, err := x.undo(true); err != nil || again.Target != c.state { // idempotent
				t.Fatal(again, err)
			}
			r.eventually("P was told", func() bool {
				s := r.p[0].Seen()
				return s.Prefills == c.p.Prefills && s.Aborted == c.p.Aborted && s.Released >= c.p.Released
			})
			r.eventually("D was told", func() bool {
				s := r.d[0].Seen()
				return s.Decodes >= c.d.Decodes && s.Aborted >= c.d.Aborted && s.Rejected >= c.d.Rejected
			})
			r.clean()
		})
	}
}

// Who has fetched from P in this life rejects, whose word is P's at once; a D of
// another life, or for another life of P, fetches first.
func TestOnlyADThatHasFetchedFromPRejects(t *testing.T) {
	r := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{}, {}}, nil)
	epoch := handoff.Epoch(0)
	left := func(d int) (rejected, decodes int) {
		t.Helper()
		before := [2]vllmtest.Seen{r.d[0].Seen(), r.d[1].Seen()}
		epoch++
		x := r.attempt(epoch, 0, d)
		x.must(x.reserve, x.prefill, x.pull)
		if _, err := x.undo(true); err != nil {
			t.Fatal(err)
		}
		r.clean()
		for i, b := range before {
			now := r.d[i].Seen()
			rejected += now.Rejected - b.Rejected
			decodes += now.Decodes - b.Decodes
		}
		return rejected, decodes
	}
	if rejected, decodes := left(0); rejected != 0 || decodes != 1 {
		t.Errorf("a stranger: %d rejected, %d fetched", rejected, decodes)
	}
	for d := range 2 { // whichever the plan names: another one that has fetched will do
		if rejected, decodes := left(d); rejected != 1 || decodes != 0 {
			t.Errorf("after D 0 fetched, a plan of D %d: %d rejected, %d fetched", d, rejected, decodes)
		}
	}
	for what, e := range map[string]*vllmtest.Engine{"D": r.d[0], "P": r.p[0]} {
		e.Restart()
		r.eventually("the new life is known", func() bool {
			a, b, c := r.byAddress[r.p[0].URL()].life(), r.byAddress[r.d[0].URL()].life(), r.byAddress[r.d[0].URL()]
			_, _, up := c.known()
			return up && !c.hasFetched(r.byAddress[r.p[0].URL()]) && a != 0 && b != 0
		})
		r.serving(3)
		if rejected, decodes := left(0); rejected != 0 || decodes != 1 {
			t.Errorf("after another life of %s: %d rejected, %d fetched", what, rejected, decodes)
		}
	}
}

func TestADThatDiesDuringThePrefillStopsIt(t *testing.T) {
	r := pair(t)
	gate := make(chan struct{})
	defer close(gate)
	r.p[0].Set(func(f *vllmtest.Faults) { f.PrefillGate = gate })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve)
	ended := make(chan error, 1)
	go func() { ended <- x.prefill() }()
	r.eventually("P computes", func() bool { return r.p[0].Seen().Prefills == 1 })
	r.d[0].Kill()
	wants(t, "prefill", <-ended, handoff.CodeEngine)
	r.eventually("P stopped", func() bool { return r.p[0].Seen().Aborted == 1 })
	r.serving(1)
	r.clean()
}

func TestAPThatDiesIsTakenOutAtOnce(t *testing.T) {
	r := newRig(t, []vllmtest.Options{{}, {}}, []vllmtest.Options{{}}, nil)
	gate := make(chan struct{})
	defer close(gate)
	r.p[0].Set(func(f *vllmtest.Faults) { f.PrefillGate = gate })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve)
	ended := make(chan error, 1)
	go func() { ended <- x.prefill() }()
	r.eventually("P computes", func() bool { return r.p[0].Seen().Prefills == 1 })
	r.p[0].Kill()
	wants(t, "prefill", <-ended, handoff.CodeEngine)
	if ans, err := x.undo(false); err != nil || ans.Target != handoff.TargetClosed {
		t.Fatal(ans, err)
	}
	r.serving(2)
	next := r.attempt(2, 1, 0)
	next.must(next.reserve, next.prefill, next.pull)
	next.attach()
	next.must(next.commit)
	next.whole()
	r.p[0].Restart()
	r.serving(3)
	r.clean()
}

func TestADThatBreaksBeforeTheFirstTokenGivesNothing(t *testing.T) {
	for name, fault := range map[string]func(*vllmtest.Faults){
		"answers 500":           func(f *vllmtest.Faults) { f.DecodeStatus = 500 },
		"answers 503":           func(f *vllmtest.Faults) { f.DecodeStatus = 503 },
		"reports in its stream": func(f *vllmtest.Faults) { f.ErrorEvent = true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, []vllmtest.Options{{}}, []vllmtest.Options{{}, {}}, nil)
			r.d[0].Set(fault)
			x := r.attempt(1, 0, 0)
			x.must(x.reserve, x.prefill, x.pull)
			x.attach()
			x.must(x.commit)
			if err := x.wait(); handoff.CodeOf(err).Advice() != handoff.NewEpoch || x.got() != "" {
				t.Error(err, x.got())
			}
			next := r.attempt(3, 0, 1)
			next.must(next.reserve, next.prefill, next.pull)
			next.attach()
			next.must(next.commit)
			next.whole()
			r.clean()
		})
	}
}

func TestAStreamThatBreaksAfterItsFirstTokenSaysSo(t *testing.T) {
	r := pair(t)
	r.d[0].Set(func(f *vllmtest.Faults) { f.Truncate = 2 })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	x.attach()
	x.must(x.commit)
	wants(t, "reader", x.wait(), handoff.CodeEngine)
	if x.got() == "" || x.finish != "" {
		t.Error(x.got(), x.finish)
	}
	r.clean()
}

func TestWhatTheClientDidWrongIsNotTriedAgain(t *testing.T) {
	r := pair(t)
	r.d[0].Set(func(f *vllmtest.Faults) { f.DecodeStatus = 400 })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	x.attach()
	x.must(x.commit)
	wants(t, "reader", x.wait(), handoff.CodeInvalid)
	if f := r.Refusal("ref"); f == nil || f.Status != 400 || len(f.Body) == 0 || r.Refusal("ref") != nil {
		t.Errorf("the engine's words are not kept once: %+v", f)
	}
	y := r.attempt(2, 0, 0)
	wants(t, "reserve", y.reserve(), handoff.CodeInvalid)
	if n := r.p[0].Seen().Prefills; n != 1 {
		t.Errorf("%d prefills", n)
	}
	r.d[0].Set(func(f *vllmtest.Faults) { f.DecodeStatus = 0 }) // it was the client's words alone
	r.clean()

	// More tokens than the context holds is found before D is asked.
	z := r.attempt(1, 0, 0)
	z.plan.Attempt.Handoff = "h9"
	z.body = `{"model":"fake","prompt":"abc","max_tokens":4096}`
	z.must(z.reserve, z.prefill)
	wants(t, "pull", z.pull(), handoff.CodeInvalid)
	r.clean()
}

// However long D takes to find, inside of its stream, that it will not: P hears of it.
func TestWhatDRefusesInsideOfItsStreamFreesP(t *testing.T) {
	r := pair(t)
	gate := make(chan struct{})
	r.d[0].Set(func(f *vllmtest.Faults) { f.EventStatus, f.TokenGate = 400, gate })
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	x.attach()
	x.must(x.commit)
	r.eventually("D was asked", func() bool { return r.d[0].Seen().Decodes == 1 })
	r.mu.Lock()
	r.attempts[x.plan.Attempt].decode.sent = time.Now().Add(-time.Minute)
	r.mu.Unlock()
	close(gate)
	wants(t, "reader", x.wait(), handoff.CodeInvalid)
	r.eventually("P was told", func() bool { return r.p[0].Held() == 0 })
	if f := r.Refusal("ref"); f == nil || f.Status != 400 || len(f.Body) == 0 {
		t.Errorf("the engine's words are not kept: %+v", f)
	}
	y := r.attempt(2, 0, 0)
	wants(t, "reserve", y.reserve(), handoff.CodeInvalid)
	r.clean()
}

// A request to D that was broken off after a while D aborts, and tells P itself; one that
// D answered it will not take, nobody told P of.
func TestOnlyWhatDAnsweredIsARefusal(t *testing.T) {
	r := pair(t)
	for err, fetched := range map[error]bool{
		handoff.Errorf(handoff.CodeCancelled, "its reader stopped"):                                             true,
		&vllm.Failure{Reason: handoff.Errorf(handoff.CodeUnavailable, "the reader left")}:                       true,
		&vllm.Failure{Reason: handoff.Errorf(handoff.CodeInvalid, "D answered HTTP 400"), Status: 400}:          false,
		&vllm.Failure{Reason: handoff.Errorf(handoff.CodeEngine, "an error inside of its stream"), Status: 500}: false,
	} {
		x := r.attempt(1, 0, 0)
		a := &attempt{plan: x.plan, d: x.d, prefill: &prefill{}, decode: &decode{done: make(chan struct{}), sent: time.Now().Add(-time.Minute), err: err}}
		var stop context.CancelFunc
		a.decode.ctx, stop = context.WithCancel(t.Context())
		stop()
		r.undispatched(a, err)
		close(a.decode.done)
		if a.fetched() != fetched {
			t.Errorf("%v: want D to tell P itself: %t", err, fetched)
		}
	}
}

func TestALeaseThatNobodyRenewsEndsTheAttempt(t *testing.T) {
	r := pair(t)
	x := r.attempt(1, 0, 0)
	x.must(x.reserve, x.prefill, x.pull)
	daemon := x.mover(x.d)
	if lost, err := daemon.Renew(t.Context(), []handoff.Attempt{x.plan.Attempt}, []handoff.Attempt{x.plan.Attempt}, handoff.LeaseMin); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	lost := func() bool {
		got, err := daemon.Renew(t.Context(), nil, []handoff.Attempt{x.plan.Attempt}, time.Second)
		return err == nil && len(got) == 1
	}
	if lost() {
		t.Error("lost before its lease ended")
	}
	r.mu.Lock()
	r.table.Get(x.plan.Attempt).End = 0
	r.mu.Unlock()
	_, err := x.undo(true)
	if err != nil {
		t.Fatal(err)
	}
	r.eventually("the attempt is lost", lost)
	r.clean()
}
