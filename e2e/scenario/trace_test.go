package scenario

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// What a real service sees: lengths and arrivals of a public trace of
// conversations, sped up. Every stream is whole and in order, every token is
// counted, and nothing is held. Speed is printed, not asserted: the machine is
// whatever it is.
func TestAConversationTraceIsServedWhole(t *testing.T) {
	requests, speed := 100, 2.5
	if patient {
		requests, speed = 500, 4
	}
	s := open(t, fleet.Options{PrefillRate: 40_000, Step: 4 * time.Millisecond, Blocks: 16384})
	items, origin := conversations(t, requests)
	items = traffic.Speed(items, speed)
	at := make([]time.Duration, len(items))
	var prompt, output int
	for i, it := range items {
		at[i] = it.At
		prompt, output = prompt+it.Prompt, output+it.Output
	}
	began := time.Now()
	answers := traffic.Arrivals(within(t, 4*time.Minute), at, func(ctx context.Context, i int) traffic.Answer {
		ask := s.ask(max(1, items[i].Prompt-2), items[i].Output)
		ask.Prefill, ask.Decode = "", ""
		c := s.g1()
		if i%2 == 1 {
			c = s.g2()
		}
		return c.Send(ctx, ask)
	})
	took := time.Since(began)
	var direct int
	for i, a := range answers {
		if err := a.Counted(items[i].Output); err != nil {
			t.Errorf("request %d (%d in, %d out): %s", i, items[i].Prompt, items[i].Output, err)
			continue
		}
		if a.Usage.Prompt != max(3, items[i].Prompt) || a.Usage.Direct != a.Usage.Prompt {
			t.Errorf("request %d: usage %+v, prompt of %d tokens", i, a.Usage, items[i].Prompt)
		}
		direct += a.Usage.Direct
	}
	s.atRest(t)
	t.Logf("%s, %g times as fast: %d prompt tokens (%d direct), %d to answer\n%s", origin, speed, prompt, direct, output,
		traffic.Summarize(answers, took, traffic.SLO{FirstToken: 500 * time.Millisecond, Gap: 25 * time.Millisecond}))
}

// conversations are the trace's own requests where it lies beside the
// checkout, else generated ones of the same distribution.
func conversations(t *testing.T, n int) ([]traffic.Item, string) {
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "traces", "azure_llm_2023_conv.csv"))
	if os.IsNotExist(err) {
		return traffic.Generated(1, n), "generated conversations"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	items, err := traffic.ReadAzure(f, n)
	if err != nil {
		t.Fatal(err)
	}
	return items, "the Azure conversation trace"
}
