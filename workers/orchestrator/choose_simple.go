package orchestrator

import (
	"slices"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

type leastUsed struct{}

func newChooser() chooser { return leastUsed{} }

func (leastUsed) choose(engines []ledger.Registered, in steps.Input, pin pins, exclude []handoff.EngineID) (p, d ledger.Registered, err error) {
	pick := func(ok func(ledger.Registered) bool, name string) (best ledger.Registered, found bool) {
		for _, excl := range []bool{true, false} {
			for _, e := range engines {
				if e.Model != in.Model || e.Cordoned || !ok(e) || (name != "" && string(e.ID) != name) {
					continue
				}
				if excl && slices.Contains(exclude, e.ID) {
					continue
				}
				if !found || e.Promises < best.Promises {
					best, found = e, true
				}
			}
			if found {
				return best, true
			}
		}
		return best, false
	}
	var ok bool
	if d, ok = pick(func(e ledger.Registered) bool { return e.Role.Decodes() }, pin.decode); !ok {
		return p, d, handoff.Errorf(handoff.CodeUnavailable, "no decode engine serves model %q", in.Model)
	}
	if p, ok = pick(func(e ledger.Registered) bool { return e.Role.Prefills() && e.Revision == d.Revision }, pin.prefill); !ok {
		return p, d, handoff.Errorf(handoff.CodeUnavailable, "no prefill engine serves model %q", in.Model)
	}
	return p, d, nil
}
