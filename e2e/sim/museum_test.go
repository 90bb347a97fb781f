package sim

import (
	"testing"
)

// row is one failure of another system, as cases here: the fault that it needs,
// what must come of it, and what must not. Its right behaviour is in the
// museum's words.
type row struct {
	name, source string
	strikes      []string // each a case of its own
	client       []string // what the client may have; empty: only the invariants
	plant        string   // the bug, where it can be planted here: it must be found in found[plant]
}

var whole = []string{"4 tokens, none"}

// museum lists rows that a simulated handoff shows. Rows of the byte mover, and
// those that need real processes, are tests beside what they are about.
var museum = []row{
	{"T01 a ticket after its source was dropped", "vllm-project/vllm#52234", []string{"preempt at lane-open:ask", "preempt at lane-data:answer", "preempt at pull:ask"}, whole, ""},
	{"T01 a ticket whose lease lapsed", "vllm-project/vllm#52234", []string{"stale at pull:ask", "pause-d0 at lane-open:ask"}, whole, ""},
	{"T03 a byte flips on the way", "ai-dynamo/dynamo#12463", []string{"corrupt at lane-data:answer"}, whole, ""},
	{"T03 a byte flips at the source", "ai-dynamo/dynamo#12463", []string{"corrupt-source at lane-read:ask", "corrupt-source at lane-sealed:answer"}, whole, ""},
	{"T05 a lease that ended during the read", "aws-samples/aws-do-eks#84", []string{"pause-p at lane-read:ask", "cut-P-D at lane-data:answer"}, whole, ""},
	{"T06 prefill aborted, decode told", "sgl-project/sglang#34208", []string{"restart-p.engine at announce:ask", "restart-p.engine at lane-news:answer", "preempt at announce:answer"}, whole, ""},
	{"T07 cancelled in mid-write", "sgl-project/sglang#24527", []string{"cancel at lane-data:answer", "cancel at lane-read:ask", "cancel at lane-news:answer"}, nil, drainSource},
	{"T13 P never reports", "vllm-project/vllm#46283", []string{"pause-p at lane-close:ask", "restart-host-p at seal:ask", "restart-host-p at lane-finish:ask"}, whole, ""},
	{"T14 cancelled between P and D", "ai-dynamo/dynamo#7489", []string{"cancel at seal:answer", "cancel at pull:ask", "cancel at commit:ask", "cancel at commit:answer", "cancel at open-target:ask", "cancel at token:answer"}, nil, ""},
	{"T19 a dead P's memory", "vllm-project/vllm#58063", []string{"restart-host-p at lane-read:ask", "restart-host-p at pull:answer"}, whole, ""},
	{"T21 an outcome that nobody reported", "vllm-project/vllm#58188", []string{"lose at pull:answer", "lose at prefill:answer", "lose at reserve:answer", "lose at commit:answer", "lose at stream-ended:answer"}, whole, ""},
	{"T24 one leg fails", "sgl-project/sglang#9726", []string{"restart-p.engine at prefill:ask", "full-D at reserve:ask", "disk-full at lane-data:answer"}, whole, ""},
	{"T25 a late message of what is over", "lightseekorg/smg#2463", []string{"stale at commit:ask", "stale at open-target:ask", "stale at start:ask"}, nil, ""},
	{"T26 an address of an earlier life", "lightseekorg/smg#2491", []string{"restart-p at prefill:ask", "restart-d0 at reserve:ask", "restart-host-d0 at claim:answer"}, whole, ""},
	{"T30 a transfer that stalls", "ai-dynamo/nixl#2047", []string{"pause-p at lane-read:ask", "cut-both at lane-read:ask"}, whole, ""},
	{"T36 a request that may have run", "sgl-project/sglang#34570", []string{"kill-g0 at commit:ask", "kill-g0 at token:answer", "come-again at commit:ask", "lose at start:answer"}, nil, clientLeaves},
	{"T38 an attempt's answer under another's name", "NVIDIA/TensorRT-LLM#15309", []string{"late at reserve:answer", "late at commit:answer", "twice at commit:ask"}, whole, ""},
	{"T42 a stalled worker and its replacement", "ai-dynamo/dynamo#11647", []string{"pause-g0 at promise:ask", "pause-g0 at commit:ask", "isolate-g0 at pull:answer"}, nil, readerRecords},
	{"T50 mixed revisions pair up", "llm-d/llm-d#499", []string{"wrong-revision at reserve:ask"}, whole, ""},
	{"T53 the orchestrator dies at each record", "llm-d-incubation/llm-d-async#391", []string{"kill-g0 at record:ask", "kill-g0 at record:answer", "kill-g0 at close:ask", "kill-g0 at settle:answer"}, nil, readerLife},
	{"V01 the lease ended before D read", "vllm-project/vllm (seen by running it)", []string{"stale at lane-open:ask", "pause-D-host at pull:ask"}, whole, ""},
	{"V02 the lease ended while D read", "vllm-project/vllm (seen by running it)", []string{"pause-D-host at lane-data:answer", "pause-d0 at lane-news:answer"}, whole, ""},
	{"V04 P's answer overtook its own publish", "vllm-project/vllm (seen by running it)", []string{"delay at open-source:ask", "delay at seal:ask", "delay at announce:ask"}, whole, ""},
}

// TestMuseum runs each row: without its bug every case holds and ends as it
// must, with the bug planted a check reports it.
func TestMuseum(t *testing.T) {
	for _, r := range museum {
		t.Run(r.name, func(t *testing.T) {
			for _, x := range r.strikes {
				for s := range uint64(2) {
					c, err := ParseCase(*seed+s, x)
					if err != nil {
						t.Fatal(err)
					}
					got := wantHolds(t, c)
					if got.Struck == 0 {
						t.Logf("%s: the point was not reached", c)
					}
					if len(r.client) > 0 && got.Client != r.client[0] {
						t.Errorf("%s: the client has %s, want %s\n%s", c, got.Client, r.client[0], got.Text())
					}
				}
			}
			if r.plant != "" && !isFound(t, r.plant) {
				t.Errorf("with the bug %q nothing is reported", r.plant)
			}
		})
	}
}

// isFound says whether a planted bug is reported in its own case.
func isFound(t *testing.T, plant string) bool {
	for n := range uint64(40) {
		c := found[plant][0]
		c.Seed += n
		c.Plant = plant
		if Run(t, c).Failed() {
			return true
		}
	}
	return false
}
