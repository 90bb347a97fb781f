package peers

import (
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

// rounds of a floor that takes 80 ms and of a router that takes more.
func rounds(more time.Duration) (out []Round) {
	for i := range 3 {
		floor := time.Duration(80+i) * time.Millisecond
		out = append(out, Round{Side: Direct, Load: poissonLoad(40), TTFT50: floor, TTFT99: floor},
			Round{Side: Ours, Load: poissonLoad(40), TTFT50: floor + more, TTFT99: floor + more})
	}
	return out
}

func TestAddedTimeIsPairedByRound(t *testing.T) {
	if got := added(rounds(2*time.Millisecond), Ours, poissonLoad(40), ttft50); got != 2*time.Millisecond {
		t.Errorf("added %s", got)
	}
}

func TestAMustIsMissedOnlyWhereItWasMeasured(t *testing.T) {
	for more, want := range map[time.Duration]int{time.Millisecond: 0, 10 * time.Millisecond: 1, 20 * time.Millisecond: 2} {
		r := Report{Rounds: rounds(more), Sides: []string{Direct, Ours}}
		if got := r.Missed(); got != want {
			t.Errorf("%s more: %d musts missed, want %d", more, got, want)
		}
	}
}

func TestTheGoalsAreOneTable(t *testing.T) {
	var out strings.Builder
	r := Report{Rounds: rounds(0), Sides: []string{Direct, Ours}, Faults: []Fault{{Name: faultKey, Values: map[string]int{Ours: 1, VLLMRouter: 3}}}}
	r.printGoals(&out)
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		if strings.Count(line, "|") != 7 {
			t.Errorf("%q is no row", line)
		}
	}
	if !strings.Contains(out.String(), "| 3 (vllm-router) | 1 |  | 1 | must |") {
		t.Errorf("%s", out.String())
	}
}

func TestATraceIsCutToItsRateAndBounds(t *testing.T) {
	items := Trim(traffic.Generated(3, 500))
	if len(items) != traceRequests {
		t.Fatalf("%d requests", len(items))
	}
	if took := items[len(items)-1].At.Seconds(); took < 3.9 || took > 4.1 {
		t.Errorf("%d requests in %.2f s", len(items), took)
	}
	for _, it := range items {
		if it.Output < 1 || it.Output > traceTokens || it.Prompt > tracePrompt {
			t.Errorf("%+v", it)
		}
	}
}
