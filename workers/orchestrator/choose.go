package orchestrator

import (
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// chooser picks P and D from the fleet's view.
type chooser interface {
	choose(engines []ledger.Registered, in steps.Input, pin pins, exclude []handoff.EngineID) (p, d ledger.Registered, err error)
}
