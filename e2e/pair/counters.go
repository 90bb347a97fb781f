package pair

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// What an engine counts, beside what the adapter itself reads.
const (
	BySource  = "vllm:prompt_tokens_by_source_total"
	External  = "external_kv_transfer"
	Local     = "local_compute"
	LocalHit  = "local_cache_hit"
	Expired   = "vllm:nixl_num_kv_expired_reqs_total"
	TooLate   = "vllm:nixl_num_notifications_after_expiry_total"
	Usage     = "vllm:kv_cache_usage_perc"
	Running   = "vllm:num_requests_running"
	Waiting   = "vllm:num_requests_waiting"
	Succeeded = "vllm:request_success_total"
)

// Counters is one look at an engine's metrics.
type Counters map[string]*dto.MetricFamily

// Look reads the metrics of the server at url.
func Look(ctx context.Context, url string) (Counters, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: HTTP %d", resp.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// Sum adds the values of a metric whose label has the value; no label: all.
func (c Counters) Sum(name, label, value string) (sum float64) {
	for _, m := range c[name].GetMetric() {
		if label == "" || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value }) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sum
}

// Source is how many prompt tokens came from there.
func (c Counters) Source(source string) int { return int(c.Sum(BySource, "source", source)) }

// Has says whether the engine tells a metric at all.
func (c Counters) Has(name string) bool { return len(c[name].GetMetric()) > 0 }
