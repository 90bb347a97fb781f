package connector

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

// spinning is what an engine of vLLM's own burns while it holds something: it
// steps as fast as it can. Ours is told below; only a spin fails.
const spinning = 0.5 // of a core

func TestAnEngineThatHoldsDoesNotSpin(t *testing.T) {
	rest := burnt(t, "d1")
	must(t, rig.vllm["p1"].Pause())
	r := rig.start(t, traffic.Ask{Prompt: promptOf(t, 200), MaxTokens: 8, Decode: "d1"})
	reserved(t, "d1")
	holding := burnt(t, "d1")
	r.leave()
	<-r.ended
	must(t, rig.vllm["p1"].Resume())
	t.Logf("d1 with its API server burns %.1f %% of a core at rest, %.1f %% holding", 100*rest, 100*holding)
	if holding > spinning {
		t.Errorf("%.0f %% of a core is burnt for nothing", 100*holding)
	}
	atRest(t)
}

// burnt is the share of a core that an engine's processes take now.
func burnt(t *testing.T, id string) float64 {
	t.Helper()
	const look = 3 * time.Second // an interval that is measured, not a wait for something
	before, interval := ticks(t, rig.vllm[id].PID), time.NewTimer(look)
	<-interval.C
	return float64(ticks(t, rig.vllm[id].PID)-before) / 100 / look.Seconds() // the kernel counts hundredths of a second
}

// ticks is the CPU time of a process group.
func ticks(t *testing.T, group int) (sum int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if f[2] != strconv.Itoa(group) {
			continue
		}
		for _, n := range f[11:13] {
			v, err := strconv.Atoi(n)
			must(t, err)
			sum += v
		}
	}
	return sum
}

// The connector's own tests, in the environment that it runs in.
func TestThePythonSidePassesItsTests(t *testing.T) {
	c := exec.CommandContext(within(t), rig.env.Python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "../../transferd/connectors/vllm/tests")
	c.Env = append(os.Environ(), "PYTHONPATH="+rig.env.Path, "LD_LIBRARY_PATH="+rig.env.Stubs, "PYTHONDONTWRITEBYTECODE=1")
	out, err := c.CombinedOutput()
	t.Log(string(out))
	must(t, err)
}
