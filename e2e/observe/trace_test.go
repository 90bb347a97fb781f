package observe

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/tracing"
	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fault"
	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/fleet/fleettest"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// traced opens a fleet whose processes all send their spans to a collector.
func traced(t *testing.T) (*chaos.Stage, *collector) {
	t.Helper()
	p := fleettest.Built(t, false)
	c := collect(t)
	o := chaos.Options()
	o.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.address, "OTEL_TRACES_SAMPLER_ARG=0"} // only what brings a sampled trace
	s, err := chaos.Open(t.Context(), p, o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// parent is a client's traceparent.
func parent(t *testing.T) (header, trace, id string) {
	t.Helper()
	b := make([]byte, 24)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	trace, id = hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:])
	return "00-" + trace + "-" + id + "-01", trace, id
}

// await gives the spans of a trace once fits says that all are there.
func (c *collector) await(t *testing.T, trace string, missing func([]span) string) []span {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		spans := c.of(trace)
		why := missing(spans)
		if why == "" {
			return spans
		}
		if time.Now().After(end) {
			t.Fatalf("%s; of %d spans:\n%s", why, len(spans), tree(spans))
		}
	}
}

// tree draws spans as they hang together.
func tree(spans []span) string {
	var b strings.Builder
	var draw func(parent string, depth int)
	draw = func(parent string, depth int) {
		for _, s := range spans {
			if s.parent == parent {
				fmt.Fprintf(&b, "%s%s · %s · epoch %s · %s\n", strings.Repeat("  ", depth), s.name, s.service, s.epoch(), s.attributes[tracing.KeyCode])
				draw(s.id, depth+1)
			}
		}
	}
	for _, s := range spans {
		if !slices.ContainsFunc(spans, func(o span) bool { return o.id == s.parent }) {
			fmt.Fprintf(&b, "%s · %s · epoch %s · %s\n", s.name, s.service, s.epoch(), s.attributes[tracing.KeyCode])
			draw(s.id, 1)
		}
	}
	return b.String()
}

// under says whether s hangs below a span of that name and service.
func under(spans []span, s span, name, service string) bool {
	for {
		i := slices.IndexFunc(spans, func(o span) bool { return o.id == s.parent })
		if i < 0 {
			return false
		}
		if s = spans[i]; s.name == name && s.service == service {
			return true
		}
	}
}

const (
	root     = "POST /v1/completions"
	front    = "surehand-serve"
	anEngine = "surehand-engine"
	aDaemon  = "surehand-transferd"
)

// hanging are what one epoch must leave: a span, whose process it is of, and
// below which span of which process it hangs.
var hanging = []struct{ name, service, below, of string }{
	{tracing.StepPrefix + "reserve", front, root, front},
	{tracing.StepPrefix + "prefill", front, root, front},
	{tracing.StepPrefix + "transfer", front, root, front},
	{tracing.StepPrefix + "commit", front, root, front},
	{tracing.SpanStream, front, root, front},
	{tracing.SpanPull, aDaemon, tracing.StepPrefix + "transfer", front},
	{tracing.SpanServe, aDaemon, tracing.SpanPull, aDaemon}, // between the two daemons
	{tracing.SpanPrefill, anEngine, tracing.StepPrefix + "prefill", front},
	{tracing.SpanDecode, anEngine, tracing.StepPrefix + "reserve", front},
}

// lacks says what of an epoch is not there, or hangs wrongly.
func lacks(spans []span, epoch string) string {
	for _, want := range hanging {
		if !slices.ContainsFunc(spans, func(s span) bool {
			return s.name == want.name && s.service == want.service && s.epoch() == epoch && under(spans, s, want.below, want.of)
		}) {
			return fmt.Sprintf("no %q of %s of epoch %s below %q", want.name, want.service, epoch, want.below)
		}
	}
	return ""
}

// One request that brings a traceparent is one trace through every process, and
// says nothing of what was asked.
func TestOneRequestIsOneTraceThroughEveryProcess(t *testing.T) {
	t.Parallel()
	s, c := traced(t)
	header, trace, id := parent(t)
	a := s.Ask(chaos.LongPrompt, 5)
	a.Prompt = "Netherfield " + a.Prompt[len("Netherfield "):]
	a.Trace = header
	if err := s.Clients["g1"].Send(t.Context(), a).Whole(); err != nil {
		t.Fatal(err)
	}
	spans := c.await(t, trace, func(spans []span) string { return lacks(spans, "1") })
	t.Logf("\n%s", tree(spans))
	if !slices.ContainsFunc(spans, func(s span) bool { return s.name == root && s.parent == id && s.attributes[tracing.KeyHandoff] != "" }) {
		t.Error("the client's span is not the parent of the request's")
	}
	if err := s.Clients["g1"].Send(t.Context(), s.Ask(chaos.ShortPrompt, 5)).Whole(); err != nil {
		t.Fatal(err)
	}
	killed(t, s, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.trace == strings.Repeat("0", 32) || s.parent == "" {
			t.Errorf("%s of %s begins a trace; none is sampled", s.name, s.service)
		}
	}
	for _, w := range c.words {
		if strings.Contains(w, "Netherfield") {
			t.Errorf("a span quotes the prompt: %.100s", w)
		}
	}
}

// killed has P die in its prefill: both epochs are in the one trace.
func killed(t *testing.T, s *chaos.Stage, c *collector) {
	t.Helper()
	header, trace, _ := parent(t)
	a := s.Ask(chaos.LongPrompt, 5)
	a.Trace, a.Prefill, a.Deadline = header, "p1", 30*time.Second
	struck, err := fault.Strike(t.Context(), s.Fleet, s.Clients["g1"], a, fault.Prefill, func(fleet.Event) error { return s.Process("p1").Kill() })
	if err != nil {
		t.Fatal(err)
	}
	if err := struck.Answer.Whole(); err != nil {
		t.Fatal(err)
	}
	spans := c.await(t, trace, func(spans []span) string { return lacks(spans, "2") })
	t.Logf("\n%s", tree(spans))
	if !slices.ContainsFunc(spans, func(s span) bool {
		return s.epoch() == "1" && s.attributes[tracing.KeyCode] != "" && s.attributes[tracing.KeyCode] != "ok"
	}) {
		t.Error("nothing of the first epoch says why it failed")
	}
}
