package refengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

func wantCode(t *testing.T, what string, err error, codes ...handoff.Code) {
	t.Helper()
	for _, c := range codes {
		if handoff.CodeOf(err) == c {
			return
		}
	}
	t.Errorf("%s: %v, want %v", what, err, codes)
}

// slow paces the device so that a test can act amid a prefill or a decode.
func slow() Config {
	c := small()
	c.Profile = schedule.Profile{PrefillTokensPerSecond: 20000, StepInterval: 2 * time.Millisecond}
	return c
}

var long = ask{prompt: promptOf(lengths[len(lengths)-1]), sampling: engine.Sampling{MaxTokens: 2000, Temperature: 1, Seed: 3}, salt: "tenant"}

// Whatever the phase in which an attempt is cancelled, everything comes back.
func TestACancelAtAnyPhaseGivesEverythingBack(t *testing.T) {
	refused := []handoff.Code{handoff.CodeClosed, handoff.CodeCancelled}
	maybeSealed := append(refused, handoff.CodeNone) // D's daemon had read it to its end
	release := func(r *rig, plan handoff.Plan) error {
		return errors.Join(r.move.releaseTarget(plan), r.move.releaseSource(plan))
	}
	cancel := func(r *rig, plan handoff.Plan) error {
		_, perr := r.pc.Cancel(r.t.Context(), plan)
		_, derr := r.dc.Cancel(r.t.Context(), plan)
		return errors.Join(perr, derr)
	}
	for name, end := range map[string]func(*rig, handoff.Plan) error{"released by transferd": release, "cancelled at the engines": cancel} {
		for _, rigged := range []func(testing.TB, Config) *rig{newRig, newRealRig} {
			r := rigged(t, slow())
			for _, phase := range []struct {
				name  string
				again []handoff.Code // that a later prefill gives
				run   func(plan handoff.Plan) error
			}{
				{"reserved", refused, func(plan handoff.Plan) error {
					_, err := r.dc.Reserve(t.Context(), long.reservation(plan))
					return err
				}},
				{"prefilling", refused, func(plan handoff.Plan) error {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					_, err := r.pc.Prefill(ctx, long.prefill(plan), nil, func(uint32) { stop() })
					if err == nil || r.p.Description().SourcesHeld != 1 {
						t.Errorf("the run should outlive its first caller: %v", err)
					}
					return nil
				}},
				{"sealed", refused, func(plan handoff.Plan) error {
					_, err := r.pc.Prefill(t.Context(), long.prefill(plan), nil, nil)
					return err
				}},
				{"validated", maybeSealed, func(plan handoff.Plan) error { _, _, err := r.ready(long, plan); return err }},
				{"committed", maybeSealed, func(plan handoff.Plan) error {
					token, _, err := r.ready(long, plan)
					return errors.Join(err, r.move.commit(plan, token))
				}},
				{"decoding", maybeSealed, func(plan handoff.Plan) error {
					token, _, err := r.ready(long, plan)
					if err = errors.Join(err, r.move.commit(plan, token)); err != nil {
						return err
					}
					enough := errors.New("enough")
					if err := r.dc.Attach(t.Context(), plan, token, 0, func(engine.DecodeEvent) error { return enough }); err != enough {
						return err
					}
					return nil
				}},
			} {
				t.Run(fmt.Sprintf("%s/real %v/%s", name, r.hd != nil, phase.name), func(t *testing.T) {
					plan := r.plan()
					if err := phase.run(plan); err != nil {
						t.Fatal(err)
					}
					for range 2 { // a repeat changes nothing
						if err := end(r, plan); err != nil {
							t.Fatal(err)
						}
					}
					r.clean()
					_, err := r.dc.Reserve(t.Context(), long.reservation(plan))
					wantCode(t, "reserve again", err, handoff.CodeClosed, handoff.CodeCancelled, handoff.CodeAborted)
					_, err = r.pc.Prefill(t.Context(), long.prefill(plan), nil, nil)
					wantCode(t, "prefill again", err, phase.again...)
				})
			}
		}
	}
}

func TestAnAbortEndsTheStreamTyped(t *testing.T) {
	each(t, slow, func(t *testing.T, r *rig) {
		plan := r.plan()
		token, _, err := r.ready(long, plan)
		if err = errors.Join(err, r.move.commit(plan, token)); err != nil {
			t.Fatal(err)
		}
		n := 0
		err = r.dc.Attach(t.Context(), plan, token, 0, func(engine.DecodeEvent) error {
			if n++; n == 3 {
				return r.move.releaseTarget(plan)
			}
			return nil
		})
		wantCode(t, "attach", err, handoff.CodeAborted)
		wantCode(t, "attach later", r.dc.Attach(t.Context(), plan, token, 0, func(engine.DecodeEvent) error { return nil }), handoff.CodeAborted)
		if err := r.move.releaseSource(plan); err != nil {
			t.Fatal(err)
		}
		r.clean()
	})
}

func TestNoTokenComesBeforeTheCommit(t *testing.T) {
	each(t, small, func(t *testing.T, r *rig) {
		plan := r.plan()
		token, _, err := r.ready(long, plan)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		err = r.dc.Attach(ctx, plan, token, 0, func(e engine.DecodeEvent) error { t.Errorf("event %+v", e); return nil })
		wantCode(t, "attach", err, handoff.CodeUnavailable)
		if err := errors.Join(r.move.releaseTarget(plan), r.move.releaseSource(plan)); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "attach after the end", r.dc.Attach(t.Context(), plan, token, 0, nil), handoff.CodeClosed, handoff.CodeCancelled)
		r.clean()
	})
}

// An event that lies is not enough: the flag page must agree.
func TestACommitThatTheFlagPageDoesNotShowGivesNoToken(t *testing.T) {
	r := newRig(t, small())
	plan := r.plan()
	token, _, err := r.ready(long, plan)
	if err != nil {
		t.Fatal(err)
	}
	r.fd.events <- client.Event{Kind: client.TargetCommitted, Attempt: plan.Attempt}
	err = r.dc.Attach(t.Context(), plan, token, 0, func(e engine.DecodeEvent) error { t.Errorf("event %+v", e); return nil })
	wantCode(t, "attach", err, handoff.CodeAborted)
	if err := r.move.releaseSource(plan); err != nil {
		t.Fatal(err)
	}
	r.clean()
}

func TestRepeatsHaveNoSecondEffect(t *testing.T) {
	each(t, slow, func(t *testing.T, r *rig) {
		plan := r.plan()
		first, err := r.dc.Reserve(t.Context(), long.reservation(plan))
		if err != nil {
			t.Fatal(err)
		}
		free := r.d.Description().BlocksFree
		if again, err := r.dc.Reserve(t.Context(), long.reservation(plan)); err != nil || again != first {
			t.Errorf("reserve again: %+v, %v", again, err)
		}
		var opened [2]engine.Opened
		sealed := make(chan error, 2)
		for i := range opened {
			go func() {
				_, err := r.pc.Prefill(t.Context(), long.prefill(plan), func(o engine.Opened) { opened[i] = o }, nil)
				sealed <- err
			}()
		}
		if err := errors.Join(<-sealed, <-sealed); err != nil {
			t.Fatal(err)
		}
		if len(opened[0].Capability) == 0 || !bytes.Equal(opened[0].Capability, opened[1].Capability) || r.p.Description().SourcesHeld != 1 {
			t.Errorf("two callers of one prefill saw %+v", opened)
		}
		if r.d.Description().BlocksFree != free || r.d.Description().TargetsHeld != 1 {
			t.Error("a repeat took memory")
		}
		other := plan
		other.BodyDigest[0]++
		_, err = r.dc.Reserve(t.Context(), long.reservation(other))
		wantCode(t, "reserve with another body", err, handoff.CodeConflict)
		_, err = r.pc.Prefill(t.Context(), long.prefill(other), nil, nil)
		wantCode(t, "prefill with another body", err, handoff.CodeConflict)
		_, err = r.pc.Cancel(t.Context(), other)
		wantCode(t, "cancel with another body", err, handoff.CodeConflict)
	})
}

func TestARefusalTakesNothingAndMayBeAskedAgain(t *testing.T) {
	c := small()
	c.Blocks = 40
	r := newRig(t, c)
	plan := r.plan()
	tooMuch := ask{prompt: promptOf(300), sampling: engine.Sampling{MaxTokens: 400}}
	_, err := r.dc.Reserve(t.Context(), tooMuch.reservation(plan))
	wantCode(t, "reserve", err, handoff.CodeCapacity)
	_, err = r.pc.Prefill(t.Context(), ask{prompt: promptOf(700), sampling: engine.Sampling{MaxTokens: 1}}.prefill(plan), nil, nil)
	wantCode(t, "prefill", err, handoff.CodeCapacity)
	r.clean()
	fits := ask{prompt: promptOf(300), sampling: engine.Sampling{MaxTokens: 100}}
	if _, err := r.dc.Reserve(t.Context(), fits.reservation(plan)); err != nil {
		t.Error(err)
	}
	refused := handoff.Errorf(handoff.CodeStaleEpoch, "a higher epoch was seen")
	for _, f := range []*fakeDaemon{r.fp, r.fd} {
		f.mu.Lock()
		f.refused = refused
		f.mu.Unlock()
	}
	second := r.plan()
	_, err = r.dc.Reserve(t.Context(), ask{prompt: promptOf(20), sampling: engine.Sampling{MaxTokens: 1}}.reservation(second))
	wantCode(t, "reserve", err, handoff.CodeStaleEpoch)
	_, err = r.pc.Prefill(t.Context(), fits.prefill(second), nil, nil)
	wantCode(t, "prefill", err, handoff.CodeStaleEpoch)
	if _, err := r.dc.Cancel(t.Context(), plan); err != nil {
		t.Error(err)
	}
	r.clean()
}

func TestWhatDoesNotFitIsRefusedByField(t *testing.T) {
	r := newRig(t, small())
	reserve := func(change func(*engine.Reservation)) error {
		q := long.reservation(r.plan())
		change(&q)
		_, err := r.dc.Reserve(t.Context(), q)
		return err
	}
	for name, c := range map[string]struct {
		code   handoff.Code
		change func(*engine.Reservation)
	}{
		"revision":    {handoff.CodeMismatch, func(q *engine.Reservation) { q.Revision = "another" }},
		"layout":      {handoff.CodeMismatch, func(q *engine.Reservation) { q.Layout = handoff.Digest{9} }},
		"incarnation": {handoff.CodeStaleIncarnation, func(q *engine.Reservation) { q.Plan.D.Incarnation = 9 }},
		"node":        {handoff.CodeStaleIncarnation, func(q *engine.Reservation) { q.Plan.D.Node = "elsewhere" }},
		"engine":      {handoff.CodeStaleIncarnation, func(q *engine.Reservation) { q.Plan.D.Engine = "another" }},
		"growth":      {handoff.CodeInvalid, func(q *engine.Reservation) { q.Sampling.MaxTokens = 0 }},
		"context":     {handoff.CodeTooLarge, func(q *engine.Reservation) { q.Sampling.MaxTokens = 8192 }},
		"stops":       {handoff.CodeTooLarge, func(q *engine.Reservation) { q.Sampling.Stop = make([]string, 17) }},
		"stop":        {handoff.CodeTooLarge, func(q *engine.Reservation) { q.Sampling.Stop = []string{string(make([]byte, 257))} }},
		"lease":       {handoff.CodeInvalid, func(q *engine.Reservation) { q.Lease = time.Millisecond }},
		"plan":        {handoff.CodeInvalid, func(q *engine.Reservation) { q.Plan.Attempt.Nonce = 0 }},
	} {
		wantCode(t, name, reserve(c.change), c.code)
	}
	for name, sampling := range map[string]engine.Sampling{"temperature": {Temperature: 11}, "top_p": {TopP: 1.5}} {
		a := long
		a.sampling = sampling
		_, err := r.pc.Prefill(t.Context(), a.prefill(r.plan()), nil, nil)
		wantCode(t, name, err, handoff.CodeInvalid)
	}
	_, err := r.pc.Reserve(t.Context(), func() engine.Reservation {
		q := long.reservation(r.plan())
		q.Plan.D = q.Plan.P
		return q
	}())
	wantCode(t, "reserve at a P", err, handoff.CodeEngine)
	r.clean()
}

func TestACancelThatComesFirstIsRemembered(t *testing.T) {
	r := newRig(t, small())
	plan := r.plan()
	for _, c := range []engine.Engine{r.pc, r.dc} {
		if known, err := c.Cancel(t.Context(), plan); known || err != nil {
			t.Errorf("known %v, %v", known, err)
		}
	}
	_, err := r.dc.Reserve(t.Context(), long.reservation(plan))
	wantCode(t, "reserve", err, handoff.CodeCancelled)
	_, err = r.pc.Prefill(t.Context(), long.prefill(plan), nil, nil)
	wantCode(t, "prefill", err, handoff.CodeCancelled)
	r.clean()
}

func TestAReaderMayJoinLateAndComeBack(t *testing.T) {
	each(t, small, func(t *testing.T, r *rig) {
		a := ask{prompt: promptOf(40), sampling: engine.Sampling{MaxTokens: 30, Temperature: 1, Seed: 5}}
		want := r.aggregated(a)
		plan := r.plan()
		token, _, err := r.ready(a, plan)
		if err = errors.Join(err, r.move.commit(plan, token), r.move.releaseSource(plan)); err != nil {
			t.Fatal(err)
		}
		r.clean() // the answer outlives the memory
		var got result
		enough := errors.New("enough")
		err = r.dc.Attach(t.Context(), plan, token, 0, func(e engine.DecodeEvent) error {
			if got.tokens >= 10 {
				return enough
			}
			return got.take(e)
		})
		if err != enough {
			t.Fatal(err)
		}
		if err := r.dc.Attach(t.Context(), plan, token, got.tokens, got.take); err != nil || got.text != want.text {
			t.Errorf("%q then %v, want %q", got.text, err, want.text)
		}
		stale := token
		stale.Generation++
		wantCode(t, "another token", r.dc.Attach(t.Context(), plan, stale, 0, got.take), handoff.CodeStaleToken)
		wantCode(t, "nobody's", r.dc.Attach(t.Context(), r.plan(), token, 0, got.take), handoff.CodeGone)
		if again, err := r.dc.Reserve(t.Context(), a.reservation(plan)); err == nil {
			t.Errorf("a decode that is over was reserved again: %+v", again)
		}
	})
}

// A worker that takes over asks for the prefill again. D may hold its state by
// then, and P has let it go: the answer is still that it was sealed.
func TestAPrefillThatDHasReadIsToldAgain(t *testing.T) {
	r := newRealRig(t, small())
	a := ask{prompt: promptOf(40), sampling: engine.Sampling{MaxTokens: 4}}
	plan := r.plan()
	token, sealed, err := r.ready(a, plan)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "P let the state go", func() bool { return r.p.Description().SourcesHeld == 0 })
	opened := false
	again, err := r.pc.Prefill(t.Context(), a.prefill(plan), func(engine.Opened) { opened = true }, nil)
	if err != nil || again != sealed || !opened {
		t.Errorf("told %+v, then %+v, %v", sealed, again, err)
	}
	var got result
	if err = errors.Join(r.move.commit(plan, token), r.dc.Attach(t.Context(), plan, token, 0, got.take)); err != nil || got.tokens != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := r.pc.Cancel(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	_, err = r.pc.Prefill(t.Context(), a.prefill(plan), nil, nil)
	wantCode(t, "after a cancel", err, handoff.CodeClosed)
	r.clean()
}
