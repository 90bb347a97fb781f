package observe

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
	"github.com/surehand/surehand/e2e/traffic"
)

var costRounds = flag.Int("observe.cost", 0, "rounds in which tracing is measured beside none; 0: not at all")

const (
	costClients  = 4
	costRequests = 120                     // of a round
	costSettles  = 1500 * time.Millisecond // spans are sent once a second
)

// What tracing costs: CPU milliseconds of all processes a handoff, by kind, on one
// fleet that does not trace and on one that does, without and with a client that
// asks for it. The three take their turns in one run, each after another.
func TestWhatTracingCosts(t *testing.T) {
	if *costRounds == 0 {
		t.Skip("a measurement: -args -observe.cost 10")
	}
	p := fleettest.Built(t, true)
	o := fleet.Options{}
	open := func() *chaos.Stage {
		s, err := chaos.Open(t.Context(), p, o)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	off := open()
	c := collect(t)
	o.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.address, "OTEL_TRACES_SAMPLER_ARG=0"}
	on := open()
	sides := []struct {
		name   string
		s      *chaos.Stage
		traced bool
	}{{"off", off, false}, {"on, not asked for", on, false}, {"on, every request", on, true}}
	used := make([]map[string][]float64, len(sides))
	for i := range used {
		used[i] = map[string][]float64{}
	}
	for n := range *costRounds + 1 {
		for turn := range sides {
			i := (n + turn) % len(sides)
			for kind, ms := range costOf(t, sides[i].s, sides[i].traced) {
				if n > 0 { // the first round is to get warm
					used[i][kind] = append(used[i][kind], ms)
				}
			}
		}
	}
	kinds := append(slices.DeleteFunc(slices.Clone(fleet.Kinds), func(k string) bool { return used[0][k] == nil }), "all")
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "CPU ms a handoff\t%s\t\n", strings.Join(kinds, "\t"))
	for i, side := range sides {
		fmt.Fprintf(w, "%s\t", side.name)
		for _, k := range kinds {
			fmt.Fprintf(w, "%.2f\t", quartile(used[i][k], 2))
		}
		fmt.Fprintln(w)
	}
	for i := 1; i < len(sides); i++ {
		more := make([]float64, *costRounds)
		for n := range more {
			more[n] = used[i]["all"][n] - used[0]["all"][n]
		}
		fmt.Fprintf(w, "%s: more than off, by pairs\t%.2f\t(%.2f to %.2f)\t\n", sides[i].name, quartile(more, 2), quartile(more, 1), quartile(more, 3))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	spans := len(c.spans)
	c.mu.Unlock()
	t.Logf("%d rounds of %d handoffs, %.1f spans a traced one; medians\n%s", *costRounds, costRequests, float64(spans)/float64(costRequests*(*costRounds+1)), out.String())
}

// costOf runs a round and waits until what trails it is done.
func costOf(t *testing.T, s *chaos.Stage, traced bool) map[string]float64 {
	t.Helper()
	before, err := s.CPU()
	if err != nil {
		t.Fatal(err)
	}
	answers := traffic.Closed(t.Context(), costClients, costRequests, func(ctx context.Context, _, _ int) traffic.Answer {
		ask := traffic.Ask{Model: s.Options.ModelName(), Prompt: traffic.Words(chaos.LongPrompt), MaxTokens: 16}
		if traced {
			ask.Trace, _, _ = parent(t)
		}
		return s.Clients["g1"].Send(ctx, ask)
	})
	for _, a := range answers {
		if err := a.Counted(16); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AtRest(t.Context(), chaos.RestWithin); err != nil {
		t.Fatal(err)
	}
	time.Sleep(costSettles)
	after, err := s.CPU()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for kind, took := range after {
		ms := float64(took-before[kind]) / float64(time.Millisecond) / costRequests
		out[kind], out["all"] = ms, out["all"]+ms
	}
	return out
}

// quartile q of 1 to 3, of values in no order.
func quartile(values []float64, q int) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, len(s)*q/4)]
}
