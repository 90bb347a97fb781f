package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/surehand/surehand/contracts/handoff"
)

// Metrics that are read. Everything else on the page is passed over unparsed.
const (
	MetricRunning    = "vllm:num_requests_running"
	MetricWaiting    = "vllm:num_requests_waiting"
	MetricUsage      = "vllm:kv_cache_usage_perc"
	MetricExpired    = "vllm:nixl_num_kv_expired_reqs_total"
	MetricFailed     = "vllm:nixl_num_failed_transfers_total"
	MetricUnnotified = "vllm:nixl_num_failed_notifications_total"
	MetricStart      = "process_start_time_seconds"
	metricCache      = "vllm:cache_config_info"
)

var read = []string{MetricRunning, MetricWaiting, MetricUsage, MetricExpired, MetricFailed, MetricUnnotified, MetricStart, metricCache}

// Sample is what one scrape said.
type Sample struct {
	Asked       time.Time // before the scrape: it says nothing of earlier moments
	values      map[string]float64
	Blocks      uint32 // of the KV cache; 0: not told
	BlockTokens uint32
}

// Value sums a metric over its engines; false means unknown, never zero.
func (s Sample) Value(name string) (float64, bool) {
	v, ok := s.values[name]
	return v, ok
}

// Scrape reads the server's metrics.
func (s *Server) Scrape(ctx context.Context, side Side) (Sample, error) {
	out := Sample{Asked: time.Now(), values: map[string]float64{}}
	page, err := s.get(ctx, side, "/metrics")
	if err != nil {
		return out, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(wanted(page)))
	if err != nil {
		return out, handoff.Errorf(handoff.CodeEngine, "%s's metrics are malformed", side)
	}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			if name == metricCache {
				out.cache(m)
				continue
			}
			out.values[name] += number(m)
		}
	}
	return out, nil
}

// wanted keeps the lines of the metrics that are read: a page has thousands.
func wanted(page []byte) []byte {
	var out []byte
	for line := range bytes.Lines(page) {
		for _, name := range read {
			if rest, ok := bytes.CutPrefix(line, []byte(name)); ok && len(rest) > 0 && (rest[0] == '{' || rest[0] == ' ') {
				out = append(out, line...)
				break
			}
		}
	}
	if n := len(out); n > 0 && out[n-1] != '\n' {
		out = append(out, '\n')
	}
	return out
}

// number reads a value whose type line was dropped.
func number(m *dto.Metric) float64 {
	return m.GetUntyped().GetValue() + m.GetGauge().GetValue() + m.GetCounter().GetValue()
}

// cache reads the block counts, which vLLM tells as labels.
func (s *Sample) cache(m *dto.Metric) {
	for _, l := range m.GetLabel() {
		n, err := strconv.ParseUint(l.GetValue(), 10, 32)
		if err != nil {
			continue // "None" while it is not known
		}
		switch l.GetName() {
		case "num_gpu_blocks": // so named on every platform
			s.Blocks += uint32(n)
		case "block_size":
			s.BlockTokens = uint32(n)
		}
	}
}

// Facts are what a server says it serves.
type Facts struct {
	Model   string
	Root    string // of the weights: a repository with its revision, or a path
	Version string // of vLLM
	Context uint32 // tokens; 0: not told
}

// Revision is what must be equal on P and D.
func (f Facts) Revision() string { return f.Root + " vllm/" + f.Version }

// Facts reads model, weights and version. A server of several models serves its
// base model, the first.
func (s *Server) Facts(ctx context.Context, side Side) (Facts, error) {
	b, err := s.get(ctx, side, "/v1/models")
	if err != nil {
		return Facts{}, err
	}
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			Root    string `json:"root"`
			Context uint32 `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &list); err != nil || len(list.Data) == 0 || list.Data[0].ID == "" {
		return Facts{}, handoff.Errorf(handoff.CodeEngine, "%s names no model", side)
	}
	if b, err = s.get(ctx, side, "/version"); err != nil {
		return Facts{}, err
	}
	var v struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil || v.Version == "" {
		return Facts{}, handoff.Errorf(handoff.CodeEngine, "%s does not tell its version", side)
	}
	m := list.Data[0]
	return Facts{Model: m.ID, Root: m.Root, Version: v.Version, Context: m.Context}, nil
}

// Health asks whether the server serves.
func (s *Server) Health(ctx context.Context, side Side) error {
	_, err := s.get(ctx, side, "/health")
	return err
}
