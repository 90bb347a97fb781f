package native

import (
	"context"
	"net/http"
	"time"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/engine/vllm"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/tracing"
)

// Prefill has P compute, once D's target is open: what D has no room for is not
// computed. opened is called at the prefill's end: nothing can be fetched before,
// and no capability is needed, since the parameters do not leave this process.
//
// Idempotent: a repeat joins the run. An attempt that is closed stays closed;
// one whose answer was lost is not asked again, because P would compute and pin
// a second time.
func (s *seat) Prefill(ctx context.Context, p engine.Prefill, opened func(engine.Opened), _ func(uint32)) (engine.Sealed, error) {
	a, err := s.f.hold(p.Plan)
	if err != nil {
		return engine.Sealed{}, err
	}
	if s != a.p {
		return engine.Sealed{}, handoff.Errorf(handoff.CodeInvalid, "the plan prefills on another engine")
	}
	select {
	case <-a.reserved:
	case <-a.ended:
		return engine.Sealed{}, a.cause
	case <-ctx.Done():
		return engine.Sealed{}, handoff.Errorf(handoff.CodeUnavailable, "the asker stopped waiting for D's room")
	}
	run, err := s.f.begin(a, p.Prompt, tracing.Text(ctx))
	if err != nil {
		return engine.Sealed{}, err
	}
	select {
	case <-run.done:
	case <-ctx.Done():
		return engine.Sealed{}, handoff.Errorf(handoff.CodeUnavailable, "the asker stopped waiting")
	}
	if run.err == nil && opened != nil {
		opened(engine.Opened{SourceAddress: s.server.Address(), PromptTokens: run.sealed.PromptTokens})
	}
	return run.sealed, run.err
}

// begin starts the run or joins it.
func (f *Fleet) begin(a *attempt, envelope []byte, trace string) (*prefill, error) {
	req, v, err := parse(envelope)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case a.prefill != nil:
		return a.prefill, nil
	case a.cause != nil:
		return nil, a.cause
	}
	run := &prefill{done: make(chan struct{}), request: v, ref: req.Ref, header: req.Header.Clone(), trace: trace}
	if run.header == nil {
		run.header = http.Header{}
	}
	run.header.Set("X-Request-Id", a.requestID())
	a.prefill = run
	f.wg.Go(func() { f.compute(a, run) })
	return run, nil
}

// compute asks P. Its sample from before may be old: that it is older only makes
// a rise of the counters since more likely.
func (f *Fleet) compute(a *attempt, run *prefill) {
	var transfer error
	run.before, _, _ = a.p.known()
	run.asked = time.Now()
	run.got, transfer, run.err = a.p.server.Prefill(tracing.With(a.ctx, run.trace), run.request, a.requestID(), run.header)
	if run.err == nil && transfer != nil {
		run.err = f.without(transfer)
	}
	if run.err != nil {
		f.failed(a.p, run.ref, run.err)
	} else {
		run.sealed = engine.Sealed{PromptTokens: run.got.PromptTokens, CachedTokens: run.got.CachedTokens, Compute: time.Since(run.asked)}
	}
	f.metrics.prefills.WithLabelValues(handoff.CodeOf(run.err).String()).Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	close(run.done)
	if a.cause != nil {
		f.free(a) // it was closed meanwhile, and P pinned all the same
	}
}

// without decides about a prefill that gives nothing to fetch.
func (f *Fleet) without(transfer error) error {
	if f.config.Recompute && handoff.CodeOf(transfer) == handoff.CodeMismatch {
		f.metrics.recomputed.Inc()
		return nil // D computes the prompt itself, and that is counted
	}
	return transfer
}

// failed notes what a refusal says of an engine, and keeps its words for the client.
func (f *Fleet) failed(s *seat, ref string, err error) {
	failure := failureOf(err)
	if failure == nil {
		return
	}
	if failure.Down {
		s.missed(failure)
	}
	if failure.Status >= 400 && failure.Status < 500 {
		f.refusal(ref, failure)
	}
}

// leased refuses what would reach D after our lease on P's blocks.
func (f *Fleet) leased(run *prefill) error {
	if run.got.Transfer == nil {
		return nil // D computes the prompt itself: nothing at P is needed
	}
	if since := time.Since(run.asked); since > f.caps.Own() {
		return handoff.Errorf(handoff.CodeLease, "%s after P was asked; of P's lease of %s we count on %s. A longer %s, told to Surehand as well, helps",
			since.Round(time.Millisecond), f.caps.Lease, f.caps.Own(), f.caps.LeaseSetting)
	}
	return nil
}

// fitsContext refuses what D would refuse: now that P counted, it is known.
func (f *Fleet) fitsContext(a *attempt, r vllm.Request, got vllm.Prefilled) error {
	_, d, _ := a.d.known()
	if want := uint64(got.PromptTokens) + uint64(r.MaxTokens); d.Context > 0 && got.PromptTokens > 0 && want > uint64(d.Context) {
		return handoff.Errorf(handoff.CodeInvalid, "%d prompt tokens and %d to generate, the context is %d", got.PromptTokens, r.MaxTokens, d.Context)
	}
	return nil
}
