package native

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// close steps the table by an undo or a release of either side. Both sides of an
// attempt live in this one table: whoever closes the source closes the target as
// well, unless it is committed, and the answer says so.
//
// Idempotent: closed and aborted are final; an unknown attempt gets a tombstone
// (rule 7). For the source it waits, within ctx, until P was told to free once.
func (f *Fleet) close(ctx context.Context, p handoff.Plan, sides client.Sides, event handoff.TargetEvent) (client.CloseAnswer, error) {
	if p.P.Incarnation != f.incarnation || p.D.Incarnation != f.incarnation {
		// The table of that life is gone; what D was sent, nobody knows (rule 17).
		return client.CloseAnswer{}, handoff.Errorf(handoff.CodeStaleIncarnation, "this is another life of the orchestrator that hands over natively")
	}
	f.mu.Lock()
	ans := f.table.Step(f.now(), handoff.TargetInput{Event: event, Attempt: p.Attempt, D: p.D})
	if err := ans.Err(); err != nil {
		f.mu.Unlock()
		return client.CloseAnswer{}, err
	}
	if ans.State.Final() {
		cause := handoff.Errorf(handoff.CodeClosed, "the attempt is undone")
		if event == handoff.TargetRelease {
			cause = handoff.Errorf(handoff.CodeCancelled, "the attempt is released")
		}
		f.over(p.Attempt, cause)
	}
	f.mu.Unlock()
	out := client.CloseAnswer{Target: ans.State, Token: ans.Token}
	if sides.Source {
		out.Source = handoff.SourceClosed
		// What was committed may have been read; what was not, cannot be any more.
		out.Validated = ans.State == handoff.TargetCommitted || ans.State == handoff.TargetAborted
		f.freed(ctx, p.Attempt)
	}
	return out, nil
}

// Cancel implements engine.Engine with the force of Release.
func (s *seat) Cancel(ctx context.Context, p handoff.Plan) (known bool, err error) {
	s.f.mu.Lock()
	known = s.f.attempts[p.Attempt] != nil
	s.f.mu.Unlock()
	_, err = s.f.close(ctx, p, client.Sides{Target: true, Source: true}, handoff.TargetRelease)
	return known, err
}

// release tells P to free what nobody will fetch.
type release struct {
	tried chan struct{} // closed after the first round of tries
}

// free starts the release of P's blocks when D will not fetch them: P answered,
// and D was never asked, refused, or broke before its first token. The caller
// holds the lock. Idempotent, and so is the release itself.
func (f *Fleet) free(a *attempt) {
	if a.freeing != nil || !a.sealed() || a.prefill.got.Transfer == nil || a.fetched() {
		return
	}
	a.freeing = &release{tried: make(chan struct{})}
	f.freeing[a.plan.Attempt] = a.freeing
	f.wg.Go(func() { f.tellP(a) })
}

// fetched says that D took what P pinned, or still may: then D tells P itself.
func (a *attempt) fetched() bool {
	if a.decode == nil {
		return false
	}
	select {
	case <-a.decode.done:
		left := a.decode.ctx.Err() != nil && time.Since(a.decode.sent) > dispatchGrace // D aborted it, and tells P
		return !a.decode.refused && (a.decode.err == nil && a.decode.read || left)
	default:
		return true
	}
}

// tellP has a decode server refuse the transfer, or fetch it where that is the only
// way to reach P, until one did or P's own timer has ended it. The plan's D is asked
// first; any other of the pair's kind will do, since all it does is to notify P.
func (f *Fleet) tellP(a *attempt) {
	outcome := "timer"
	defer func() {
		f.metrics.releases.WithLabelValues(outcome).Inc()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.freeing, a.plan.Attempt)
	}()
	tried := a.freeing.tried
	if !f.caps.Rejection {
		close(tried)
		return
	}
	// What P let go by its timer it is not told of: it would take that for a fetch of
	// invalid blocks.
	left := time.Until(a.prefill.asked.Add(f.caps.Lease))
	if left <= 0 {
		close(tried)
		return
	}
	ends := time.NewTimer(left)
	defer ends.Stop()
	for pause := releaseEvery; ; pause = min(2*pause, releaseMost) {
		done := f.letGo(a)
		if pause == releaseEvery {
			close(tried)
		}
		if done != "" {
			outcome = done
			return
		}
		if _, _, up := a.p.known(); !up {
			outcome = "dead" // P's blocks died with it
			return
		}
		select {
		case <-time.After(pause):
		case <-ends.C:
			return
		case <-f.life.Done():
			return
		}
	}
}

// letGo goes round the D once and says how P was told, if it was: by one that has
// fetched from it before, else by one that has not.
func (f *Fleet) letGo(a *attempt) (how string) {
	_, facts, _ := a.p.known()
	var strangers []*seat
	for i, s := range append([]*seat{a.d}, f.seats...) {
		_, d, up := s.known()
		if i > 0 && s == a.d || !s.role.Has(engine.RoleDecode) || !up || d.Model != facts.Model {
			continue
		}
		if f.caps.RejectionNeedsFetch && !s.hasFetched(a.p) {
			strangers = append(strangers, s)
			continue
		}
		if f.ask(a, askTimeout, s.server.Reject) == nil {
			return "rejected"
		}
	}
	for _, s := range strangers {
		err := f.ask(a, fetchTimeout, s.server.FetchAndDrop)
		if err == nil || handoff.CodeOf(err) == handoff.CodeInvalid {
			s.fetched(a.p) // or it refused that as well, and its handshake with P has begun: its next rejection is told
		}
		if err == nil {
			return "fetched"
		}
	}
	return ""
}

func (f *Fleet) ask(a *attempt, within time.Duration, how func(context.Context, vllm.Request, vllm.Prefilled, string, http.Header) error) error {
	ctx, cancel := context.WithTimeout(f.life, within)
	defer cancel()
	return how(ctx, a.prefill.request, a.prefill.got, a.salt(), a.prefill.header)
}

// freed waits until the first round of telling P is over, if there is one.
func (f *Fleet) freed(ctx context.Context, k handoff.Attempt) {
	f.mu.Lock()
	freeing := f.freeing[k]
	f.mu.Unlock()
	if freeing == nil {
		return
	}
	select {
	case <-freeing.tried:
	case <-ctx.Done(): // it goes on by itself
	}
}

// owed lists the attempts of which P is being told.
func (f *Fleet) owed() []handoff.Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.freeing))
}

// refusal is an engine's own words about a client's request.
type refusal struct {
	failure *vllm.Failure
	at      time.Time
}

const (
	refusalKept = time.Minute
	maxRefusals = 4096
)

// refusal keeps them for the client, in memory: they may quote the prompt.
func (f *Fleet) refusal(ref string, failure *vllm.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ref != "" && len(f.refusals) < maxRefusals {
		f.refusals[ref] = refusal{failure, time.Now()}
	}
}

// Refusal gives, once, what an engine answered to the request of a reference; nil
// when it did not refuse it.
func (f *Fleet) Refusal(ref string) *vllm.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.refusals[ref]
	delete(f.refusals, ref)
	return r.failure
}
