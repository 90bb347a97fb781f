package refengine

import (
	"errors"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestACommittedDecodeOutlivesItsTransferd(t *testing.T) {
	each(t, slow, func(t *testing.T, r *rig) {
		a := long
		a.sampling.MaxTokens = 60
		want, life := r.aggregated(a), r.d.Description().NodeIncarnation
		plan := r.plan()
		token, _, err := r.ready(a, plan)
		if err = errors.Join(err, r.move.commit(plan, token), r.move.releaseSource(plan)); err != nil {
			t.Fatal(err)
		}
		var got result
		err = r.dc.Attach(t.Context(), plan, token, 0, func(e engine.DecodeEvent) error {
			if got.tokens == 0 {
				r.restartD()
			}
			return got.take(e)
		})
		if err != nil || got.text != want.text {
			t.Errorf("%q, %v\nwant %q", got.text, err, want.text)
		}
		r.clean()
		if d := r.d.Description(); d.NodeIncarnation != life+1 {
			t.Errorf("describes incarnation %d after %d", d.NodeIncarnation, life)
		}
	})
}

func TestWhatWasNotCommittedDiesWithItsTransferdAndNewWorkGoesOn(t *testing.T) {
	each(t, slow, func(t *testing.T, r *rig) {
		plan := r.plan()
		if _, err := r.dc.Reserve(t.Context(), long.reservation(plan)); err != nil {
			t.Fatal(err)
		}
		_, err := r.pc.Prefill(t.Context(), long.prefill(plan), nil, func(tokens uint32) {
			if tokens < 100 {
				r.restartD()
				r.restartP()
			}
		})
		wantCode(t, "prefill", err, handoff.CodeStaleIncarnation)
		r.clean()
		_, err = r.dc.Reserve(t.Context(), long.reservation(plan))
		wantCode(t, "reserve under the old plan", err, handoff.CodeStaleIncarnation)
		a := long
		a.sampling.MaxTokens = 5
		if got, err := r.handoff(a); err != nil || got.tokens != 5 {
			t.Errorf("afterwards %+v, %v", got, err)
		}
		r.clean()
	})
}

// What follows from the life of a transferd is told when it changes, so nobody has to look.
func TestAnotherLifeOfItsTransferdIsToldAtOnce(t *testing.T) {
	each(t, small, func(t *testing.T, r *rig) {
		life := r.d.Description().NodeIncarnation
		r.restartD()
		for d := r.d.Description(); d.NodeIncarnation != life+1 || !r.d.Attached(); d = r.d.Description() {
			select {
			case <-r.d.Changes():
			case <-time.After(10 * time.Second):
				t.Fatalf("life %d, attached %t, and no word of it", d.NodeIncarnation, r.d.Attached())
			}
		}
		r.clean()
	})
}

// A commit whose event died with the daemon is learnt from the adoption.
func TestAnAdoptedTargetIsDecodedEvenIfItsCommitWasNeverHeardOf(t *testing.T) {
	r := newRig(t, small())
	a := long
	a.sampling.MaxTokens = 5
	plan := r.plan()
	token, _, err := r.ready(a, plan)
	if err != nil {
		t.Fatal(err)
	}
	target := r.d.attempts.findTarget(plan.Attempt)
	r.fd.mu.Lock()
	r.fd.visible[uint32(target.seq.Slot())] = plan.Attempt // the last thing it did
	r.fd.mu.Unlock()
	r.fd.restart()
	var got result
	if err := r.dc.Attach(t.Context(), plan, token, 0, got.take); err != nil || got.tokens != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := r.move.releaseSource(plan); err != nil {
		t.Fatal(err)
	}
	r.clean()
}

func TestWithoutATransferdNewWorkIsRefusedAndMemoryIsKept(t *testing.T) {
	r := newRig(t, small())
	plan := r.plan()
	if _, err := r.dc.Reserve(t.Context(), long.reservation(plan)); err != nil {
		t.Fatal(err)
	}
	r.fd.mu.Lock()
	r.fd.detached = true
	r.fd.mu.Unlock()
	if _, err := r.dc.Cancel(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	_, err := r.dc.Reserve(t.Context(), long.reservation(r.plan()))
	wantCode(t, "reserve", err, handoff.CodeUnavailable)
	if d := r.d.Description(); d.TargetsHeld != 2 || d.BlocksFree == d.Blocks {
		t.Errorf("memory was freed without proof: %+v", d)
	}
	r.fd.mu.Lock()
	r.fd.detached = false
	r.fd.mu.Unlock()
	r.fd.restart()
	r.clean()
}

func (r *rig) restartD() {
	if r.hd != nil {
		r.hd.restart()
		return
	}
	r.fd.restart()
}

func (r *rig) restartP() {
	if r.hp != nil {
		r.hp.restart()
		return
	}
	r.fp.restart()
}
