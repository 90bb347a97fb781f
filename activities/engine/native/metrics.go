package native

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehand/surehand/contracts/handoff"
)

// metrics of one fleet. Labels come from fixed sets.
type metrics struct {
	prefills   *prometheus.CounterVec // by code
	poisoned   *prometheus.CounterVec // by reason
	releases   *prometheus.CounterVec // by outcome
	recomputed prometheus.Counter
}

func newMetrics(r prometheus.Registerer, f *Fleet) (*metrics, error) {
	m := &metrics{
		prefills: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_native_prefills_total",
			Help: "Prefills asked of native engines, by the code they ended with."}, []string{"code"}),
		poisoned: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_native_poisoned_total",
			Help: "Decodes whose first token was never given, by reason: late, counters, life of P, or P silent."}, []string{"reason"}),
		releases: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "surehand_native_releases_total",
			Help: "Prefills that nobody fetched, by what freed them: rejected, fetched (and dropped, by a D that had not fetched from that P before), timer or dead."}, []string{"cause"}),
		recomputed: prometheus.NewCounter(prometheus.CounterOpts{Name: "surehand_native_recomputed_total",
			Help: "Prompts that D computed itself because P gave no transfer parameters."}),
	}
	up := prometheus.NewDesc("surehand_native_engine_up", "Whether a native engine serves.", []string{"engine"}, nil)
	open := prometheus.NewDesc("surehand_native_attempts_open", "Attempts under way.", nil, nil)
	waits := prometheus.NewDesc("surehand_native_waiting", "Requests that wait for room at a D.", nil, nil)
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.prefills), r.Register(m.poisoned), r.Register(m.releases), r.Register(m.recomputed),
		r.Register(collector{f, up, open, waits}))
}

type collector struct {
	f               *Fleet
	up, open, waits *prometheus.Desc
}

func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.up; ch <- c.open; ch <- c.waits }

func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.f.seats {
		v := 0.0
		if _, _, up := s.known(); up {
			v = 1
		}
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, v, string(s.id))
	}
	c.f.mu.Lock()
	n := len(c.f.attempts)
	c.f.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(n))
	c.f.gate.mu.Lock()
	n = c.f.gate.count
	c.f.gate.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(c.waits, prometheus.GaugeValue, float64(n))
}

// Open counts the attempts under way, by whether D was sent them.
func (f *Fleet) Open() (uncommitted, committed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.attempts {
		if t := f.table.Get(k); t != nil && t.State == handoff.TargetCommitted {
			committed++
		} else {
			uncommitted++
		}
	}
	return uncommitted, committed
}
