package scenario

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

const (
	traceSpeed    = 1.25
	tracePatience = 20 * time.Second // of a client that is told to come again
)

// What a real service sees: lengths and arrivals of a public trace of
// conversations, sped up. Every stream is whole and in order, every token is
// counted, and nothing is held. Speed is printed, not asserted: the machine is
// whatever it is, and one that is too busy refuses with a type before it begins.
func TestAConversationTraceIsServedWhole(t *testing.T) {
	t.Parallel() // on a fleet of its own: most of it is waiting for requests to be due
	requests := 100
	if patient {
		requests = 500
	}
	s := open(t, fleet.Options{PrefillRate: 40_000, Step: 4 * time.Millisecond, Blocks: 16384})
	items, origin := conversations(t, requests)
	items = traffic.Speed(items, traceSpeed)
	at := make([]time.Duration, len(items))
	var prompt, output int
	for i, it := range items {
		at[i] = it.At
		prompt, output = prompt+it.Prompt, output+it.Output
	}
	var again atomic.Int32
	began := time.Now()
	answers := traffic.Arrivals(within(t, 4*time.Minute), at, func(ctx context.Context, i int) traffic.Answer {
		ask := s.ask(max(1, items[i].Prompt-2), items[i].Output)
		ask.Prefill, ask.Decode = "", ""
		c := s.g1()
		if i%2 == 1 {
			c = s.g2()
		}
		a, refused := c.Insist(ctx, ask, tracePatience, time.Second)
		again.Add(int32(refused))
		return a
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
	t.Logf("%s, %g times as fast: %d prompt tokens (%d direct), %d to answer; %d were refused for now and asked again\n%s",
		origin, traceSpeed, prompt, direct, output, again.Load(),
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
