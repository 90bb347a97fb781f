package gateway

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/workers/orchestrator"
)

// metrics count what clients got. Labels come from fixed sets, never from a
// client's text.
type metrics struct {
	requests *prometheus.CounterVec   // by surface and code
	first    *prometheus.HistogramVec // by surface
	gap      *prometheus.HistogramVec
	prompt   *prometheus.CounterVec // by how the state came to D (S12)
	answered prometheus.Counter
}

// outcomes that are no code of a refusal.
const outcomeOK = "ok"

func newMetrics(r *prometheus.Registry, streams func() float64) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "surehand_gateway_requests_total", Help: "Requests ended, by surface and by the code the client got.",
		}, []string{"surface", "code"}),
		first: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "surehand_gateway_first_token_seconds", Help: "From the request's arrival to its first token.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"surface"}),
		gap: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "surehand_gateway_token_gap_seconds", Help: "Between two pieces of one stream.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"surface"}),
		prompt: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "surehand_gateway_prompt_tokens_total", Help: "Prompt tokens of whole streams, by how their state came to D.",
		}, []string{"path"}),
		answered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "surehand_gateway_completion_tokens_total", Help: "Tokens generated for whole streams.",
		}),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "surehand_gateway_streams_open", Help: "Streams followed now.",
	}, streams)
	var failed []error
	for _, c := range []prometheus.Collector{m.requests, m.first, m.gap, m.prompt, m.answered, open} {
		failed = append(failed, r.Register(c))
	}
	return m, errors.Join(failed...)
}

// clock times one stream.
type clock struct {
	m          *metrics
	surface    string
	first, gap prometheus.Observer // of the surface, looked up once
	last       time.Time
	begun      bool
	span       tracing.Span
}

func (m *metrics) start(surface string) *clock {
	return &clock{m: m, surface: surface, first: m.first.WithLabelValues(surface), gap: m.gap.WithLabelValues(surface), last: time.Now()}
}

// piece is called for each event that brought tokens.
func (c *clock) piece() {
	now, h := time.Now(), c.gap
	if !c.begun {
		h, c.begun = c.first, true
		c.span.Event(eventFirstToken)
	}
	h.Observe(now.Sub(c.last).Seconds())
	c.last = now
}

// end counts the outcome, and the tokens of a whole stream.
func (c *clock) end(code string, u *orchestrator.Usage) {
	c.m.requests.WithLabelValues(c.surface, code).Inc()
	if u == nil {
		return
	}
	for path, n := range map[string]uint32{"direct": u.Direct, "cached": u.Cached, "recomputed": u.Recomputed} {
		c.m.prompt.WithLabelValues(path).Add(float64(n))
	}
	c.m.answered.Add(float64(u.Completion))
}
