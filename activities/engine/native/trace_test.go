package native

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/contracts/tracing"
)

// P's and D's vLLM are asked under the request's own trace, each below the span of
// who asks. Where nothing is traced here, a client's header goes through as it came.
func TestBothEnginesAreAskedInTheRequestsTrace(t *testing.T) {
	const asked = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, on := range []bool{true, false} {
		if on {
			tracing.Use(trace.NewTracerProvider())
			t.Cleanup(func() { tracing.Use(nil) })
		} else {
			tracing.Use(nil)
		}
		r := pair(t)
		x := r.attempt(1, 0, 0)
		ctx, span := tracing.Start(tracing.With(t.Context(), asked), "step prefill", x.plan.Attempt)
		x.must(x.reserve, func() error {
			_, err := x.p.Prefill(ctx, engine.Prefill{Plan: x.plan, Prompt: x.envelope()}, nil, nil)
			return err
		}, x.pull)
		want := tracing.Text(ctx)
		span.End(nil)
		x.attach()
		x.must(x.commit)
		x.whole()
		for name, got := range map[string][]string{"P": r.p[0].Seen().Traces, "D": r.d[0].Seen().Traces} {
			switch {
			case len(got) != 1:
				t.Errorf("%s saw %v", name, got)
			case on && (got[0] != want || !strings.HasPrefix(got[0], asked[:36]) || got[0] == asked):
				t.Errorf("%s was asked under %q, want %q", name, got[0], want)
			case !on && got[0] != "t":
				t.Errorf("%s saw %q for the client's own header", name, got[0])
			}
		}
		r.clean()
	}
}
