package orchestrator

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehand/surehand/contracts/handoff"
)

// metrics of one process. Names follow the field's routers.
type metrics struct {
	handoffs   *prometheus.CounterVec
	steps      *prometheus.HistogramVec
	refused    *prometheus.CounterVec
	ttft       prometheus.Histogram
	added      prometheus.Histogram
	fenced     *prometheus.CounterVec
	recomputed prometheus.Counter
	tokens     *prometheus.CounterVec
	live       prometheus.Gauge
	resumed    prometheus.Counter
	unreleased *prometheus.GaugeVec
	journals   *prometheus.CounterVec
	attached   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		handoffs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_handoffs_total", Help: "Handoffs that ended here. Outcome: completed, cancelled, refused (before the first token) or broken (after it); phase: start or stream; reason: the code, none where it completed."}, []string{"outcome", "phase", "reason"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "surehand_handoff_phase_duration_seconds", Help: "How long each step took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}, []string{"phase"}),
		refused:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_step_refusals_total", Help: "Steps that ended with a typed refusal."}, []string{"phase", "reason"}),
		ttft:       prometheus.NewHistogram(prometheus.HistogramOpts{Name: "surehand_ttft_seconds", Help: "From the submit to the first token in the stream.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 17)}),
		added:      prometheus.NewHistogram(prometheus.HistogramOpts{Name: "surehand_added_ttft_seconds", Help: "The time to the first token less what P computed in it, where that ran in this process.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17)}),
		fenced:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_fenced_total", Help: "Steps that a fence refused: their attempt was superseded, closed or of another life."}, []string{"reason"}),
		recomputed: prometheus.NewCounter(prometheus.CounterOpts{Name: "surehand_recomputed_tokens_total", Help: "Prompt tokens of whole streams that D computed again."}),
		tokens:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_prompt_tokens_total", Help: "Prompt tokens of whole streams by how their state came to D: direct, cached or recomputed."}, []string{"source"}),
		live:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "surehand_streams_live", Help: "Streams open in this process."}),
		unreleased: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "surehand_kv_blocks_unreleased", Help: "Blocks that an engine holds for handoffs that no history runs, at two looks in a row."}, []string{"engine"}),
		resumed:    prometheus.NewCounter(prometheus.CounterOpts{Name: "surehand_resumes_total", Help: "Streams whose D died and that asked to go on under another epoch."}),
		journals:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_journals_broken_total", Help: "Journals of delivered tokens that were given up, by reason."}, []string{"reason"}),
		attached:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_reattaches_total", Help: "Clients that came back, by where their stream was found: here, a live one elsewhere, or its journal."}, []string{"source"}),
	}
	for _, c := range fences { // who watches a counter's increase sees no first one
		m.fenced.WithLabelValues(c.String())
	}
	m.handoffs.WithLabelValues("refused", "start", handoff.CodeOutcomeUnknown.String())
	m.handoffs.WithLabelValues("broken", "stream", handoff.CodeOutcomeUnknown.String())
	if r != nil {
		r.MustRegister(m.unreleased, m.resumed, m.journals, m.attached, m.handoffs, m.steps, m.refused, m.ttft, m.added, m.fenced, m.recomputed, m.tokens, m.live)
	}
	return m
}

// Step hears the end of each step.
func (m *metrics) Step(step handoff.Step, code handoff.Code, took time.Duration) {
	m.steps.WithLabelValues(string(step)).Observe(took.Seconds())
	if code != handoff.CodeNone {
		m.refused.WithLabelValues(string(step), code.String()).Inc()
	}
	if slices.Contains(fences, code) {
		m.fenced.WithLabelValues(code.String()).Inc()
	}
}

// fences are the codes by which a step learns that its attempt may act no more.
var fences = []handoff.Code{handoff.CodeClosed, handoff.CodeAborted, handoff.CodeStaleEpoch, handoff.CodeStaleIncarnation, handoff.CodeConflict, handoff.CodeReset}

// ended counts a stream that ended here; first and prefill are 0 where there was
// no token, or P's compute is not known here.
func (m *metrics) ended(first, prefill time.Duration, u Usage, outcome string) {
	phase, reason := "start", outcome
	if first > 0 {
		m.ttft.Observe(first.Seconds())
		phase = "stream"
	}
	switch {
	case outcome == outcomeCompleted:
		reason = handoff.CodeNone.String()
	case outcome == handoff.CodeCancelled.String():
	case first > 0:
		outcome = "broken"
	default:
		outcome = "refused"
	}
	m.handoffs.WithLabelValues(outcome, phase, reason).Inc()
	if first > 0 && prefill > 0 {
		m.added.Observe((first - min(prefill, first)).Seconds())
	}
	if outcome == outcomeCompleted {
		m.tokens.WithLabelValues("direct").Add(float64(u.Direct))
		m.tokens.WithLabelValues("cached").Add(float64(u.Cached))
		m.tokens.WithLabelValues("recomputed").Add(float64(u.Recomputed))
		m.recomputed.Add(float64(u.Recomputed))
	}
}
