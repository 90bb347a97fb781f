package soak

import (
	"context"
	"fmt"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/surehand/surehand/e2e/chaos"
)

// measure is one thing that may not grow.
type measure struct {
	name  string
	floor float64 // growth over the window that is none
	// bound says why growth is expected and bounded elsewhere; it is then shown,
	// not judged.
	bound string
}

const mib = 1 << 20

var measures = []measure{
	{"RSS of gateways", 24 * mib, ""},
	{"RSS of engines", 24 * mib, ""},
	{"RSS of transferds", 24 * mib, ""},
	{"RSS of temporal", 0, "it keeps the histories of the retention period in memory"},
	{"RSS of redis", 16 * mib, ""},
	{"heap goal of gateways", 16 * mib, ""}, // twice what lived at the last collection: tells a leak from what the allocator keeps
	{"heap goal of engines", 16 * mib, ""},
	{"heap goal of transferds", 16 * mib, ""},
	{"descriptors of gateways", 12, ""},
	{"descriptors of engines", 12, ""},
	{"descriptors of transferds", 12, ""},
	{"descriptors of temporal", 20, ""},
	{"goroutines of gateways", 40, ""},
	{"goroutines of engines", 40, ""},
	{"goroutines of transferds", 40, ""},
	{"registered bytes", 1, ""},
	{"keys that never expire", 4, ""},
	{"keys", 0, "a key is kept for its window, then expires"},
	{"open workflows", 4, ""},
}

// sample reads everything once.
func sample(ctx context.Context, s *chaos.Stage) (map[string]float64, error) {
	out := map[string]float64{}
	for _, p := range s.Processes() {
		kind := p.Kind()
		if kind != "redis" && kind != "temporal" {
			kind += "s"
		}
		rss, err := p.Resident()
		if err != nil {
			return nil, err
		}
		fds, err := p.Descriptors()
		if err != nil {
			return nil, err
		}
		out["RSS of "+kind] += float64(rss)
		out["descriptors of "+kind] += float64(fds)
	}
	for _, kind := range []string{"gateway", "engine", "transferd"} {
		for _, address := range s.Scrapes(kind) {
			found, err := scrape(ctx, address)
			if err != nil {
				return nil, err
			}
			out["goroutines of "+kind+"s"] += gauge(found, "go_goroutines")
			out["heap goal of "+kind+"s"] += gauge(found, "go_memstats_next_gc_bytes")
			out["registered bytes"] += gauge(found, "surehand_transferd_registered_bytes")
		}
	}
	all, lasting, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	open, err := s.OpenWorkflows(ctx)
	out["keys"], out["keys that never expire"], out["open workflows"] = float64(all), float64(lasting), float64(open)
	return out, err
}

func scrape(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := once.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s/metrics: %s", address, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// once keeps no connection: those of the measuring are none of the fleet's.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func gauge(found map[string]*dto.MetricFamily, name string) (sum float64) {
	for _, m := range found[name].GetMetric() {
		sum += m.GetGauge().GetValue()
	}
	return sum
}
