package workflows

import (
	"slices"

	"go.temporal.io/sdk/temporal"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// maySteer refuses an operator's word that comes too late; a refused one leaves
// no trace in the history.
func (r *run) maySteer(s steps.Steer) error {
	p := r.coord.Phase()
	switch {
	case r.coord.Outcome() != nil:
		return refuse(handoff.CodeClosed, "the handoff is ending")
	case s.Now && p == handoff.PhaseDecoding:
		return refuse(handoff.CodeConflict, "the handoff is committed: it can be cancelled, not replaced")
	case s.Now && p != handoff.PhaseMoving && p != handoff.PhaseCommitting:
		return refuse(handoff.CodeNotReady, "another epoch is on its way already: "+string(p))
	case s.Now && r.coord.Plan().Attempt.Epoch >= r.coord.Policy.MaxEpochs:
		return refuse(handoff.CodeTooLarge, "the handoff may have no more epochs")
	}
	return nil
}

// steer takes it. Who was told to leave comes back if an operator names it.
func (r *run) steer(s steps.Steer) steps.Steered {
	out := steps.Steered{Phase: r.coord.Phase(), Epoch: r.coord.Plan().Attempt.Epoch}
	pin := s.Pin
	r.pin = &pin
	p := r.coord.Plan()
	if s.Now && pin == (steps.Pin{}) {
		r.pin = nil
		r.avoid(p.P.Engine)
		r.avoid(p.D.Engine)
	}
	r.exclude = slices.DeleteFunc(r.exclude, func(e handoff.EngineID) bool { return e == pin.Prefill || e == pin.Decode })
	if s.Now && r.coord.Replace("replaced by "+s.By) {
		r.stop()
	}
	r.changed = true
	return out
}

func refuse(code handoff.Code, detail string) error {
	return temporal.NewApplicationErrorWithOptions(detail, code.String(), temporal.ApplicationErrorOptions{NonRetryable: true})
}
