package orchestrator

import (
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
	tokens     *prometheus.CounterVec
	live       prometheus.Gauge
	resumed    prometheus.Counter
	unreleased *prometheus.GaugeVec
	journals   *prometheus.CounterVec
	attached   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		handoffs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_handoffs_total", Help: "Handoffs that ended here, by outcome: completed or the code of the refusal."}, []string{"outcome"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "surehand_handoff_phase_duration_seconds", Help: "How long each step took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}, []string{"phase"}),
		refused:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_step_refusals_total", Help: "Steps that ended with a typed refusal."}, []string{"phase", "reason"}),
		ttft:       prometheus.NewHistogram(prometheus.HistogramOpts{Name: "surehand_ttft_seconds", Help: "From the submit to the first token in the stream.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 17)}),
		tokens:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_prompt_tokens_total", Help: "Prompt tokens of whole streams by how their state came to D: direct, cached or recomputed."}, []string{"source"}),
		live:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "surehand_streams_live", Help: "Streams open in this process."}),
		unreleased: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "surehand_kv_blocks_unreleased", Help: "Blocks that an engine holds for handoffs that no history runs, at two looks in a row."}, []string{"engine"}),
		resumed:    prometheus.NewCounter(prometheus.CounterOpts{Name: "surehand_resumes_total", Help: "Streams whose D died and that asked to go on under another epoch."}),
		journals:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_journals_broken_total", Help: "Journals of delivered tokens that were given up, by reason."}, []string{"reason"}),
		attached:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_reattaches_total", Help: "Clients that came back, by where their stream was found: here, a live one elsewhere, or its journal."}, []string{"source"}),
	}
	if r != nil {
		r.MustRegister(m.unreleased, m.resumed, m.journals, m.attached, m.handoffs, m.steps, m.refused, m.ttft, m.tokens, m.live)
	}
	return m
}

// Step hears the end of each step.
func (m *metrics) Step(step handoff.Step, code handoff.Code, took time.Duration) {
	m.steps.WithLabelValues(string(step)).Observe(took.Seconds())
	if code != handoff.CodeNone {
		m.refused.WithLabelValues(string(step), code.String()).Inc()
	}
}

// ended counts a stream that ended here.
func (m *metrics) ended(first time.Duration, u Usage, outcome string) {
	m.handoffs.WithLabelValues(outcome).Inc()
	if first > 0 {
		m.ttft.Observe(first.Seconds())
	}
	if outcome == outcomeCompleted {
		m.tokens.WithLabelValues("direct").Add(float64(u.Direct))
		m.tokens.WithLabelValues("cached").Add(float64(u.Cached))
		m.tokens.WithLabelValues("recomputed").Add(float64(u.Recomputed))
	}
}
