package scenario

import (
	"testing"

	"github.com/surehand/surehand/e2e/chaos"
)

// core are the cells of a run without patience: each victim and each phase.
var core = map[string]chaos.Phase{"g1": chaos.Commit, "p1": chaos.Prefill, "d1": chaos.Decode, "tp1": chaos.Transfer, "td1": chaos.Reserve,
	"redis": chaos.Transfer, "temporal": chaos.Decode}

// Each process is killed in each phase, one at a time. Before the first token
// the request is answered or refused with a type; after it the stream ends with
// a typed error or is not touched at all. Asked again with its key, through the
// other gateway, it is the same sampling, even where the first gateway died. At
// rest nothing is held. The other faults of the matrix are cmd/chaos's.
func TestAnyOneProcessMayDieInAnyPhase(t *testing.T) {
	for _, cell := range chaos.All() {
		if cell.Fault != "kill" || !patient && core[cell.Victim] != cell.Phase {
			continue
		}
		t.Run(cell.Victim+"/"+string(cell.Phase), func(t *testing.T) {
			r := shared(t).Run(t.Context(), cell)
			t.Logf("%s · again: %s", r.Verdict, r.Again)
			for _, broken := range r.Broken {
				t.Error(broken)
			}
		})
	}
}
