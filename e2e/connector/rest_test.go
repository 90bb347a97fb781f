package connector

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

// spinning is what an engine of vLLM's own burns while it holds something: it
// steps as fast as it can. Ours is told below; only a spin fails.
const spinning = 0.5 // of a core

func TestAnEngineThatHoldsDoesNotSpin(t *testing.T) {
	rest := burnt(t, "d1")
	must(t, rig.vllm["p1"].Pause())
	r := rig.start(t, traffic.Ask{Prompt: promptOf(t, 200), MaxTokens: 8, Decode: "d1"})
	rig.reserved(t, "d1")
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
	before, _, err := fleet.Group(rig.vllm[id].PID)
	must(t, err)
	<-time.NewTimer(look).C
	after, _, err := fleet.Group(rig.vllm[id].PID)
	must(t, err)
	return float64(after-before) / float64(look)
}

// The connector's own tests, in the environment that it runs in, those of a real P's
// memory with them.
func TestThePythonSidePassesItsTests(t *testing.T) {
	_, settings, err := rig.env.Server(vllmenv.Options{Name: "python"})
	must(t, err)
	c := exec.CommandContext(within(t), rig.env.Python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "../../transferd/connectors/vllm/tests")
	c.Env = append(append(os.Environ(), settings...), "SUREHAND_VLLM_MODEL="+rig.env.Model)
	out, err := c.CombinedOutput()
	t.Log(string(out))
	must(t, err)
	if bytes.Contains(out, []byte("skipped")) {
		t.Error("some were skipped")
	}
}
