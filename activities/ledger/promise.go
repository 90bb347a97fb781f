package ledger

import (
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// ReserveRequest asks for a promise of blocks on an engine; Incarnation is that
// of the engine's node in the plan (rule 17). The attempt is the operation id.
type ReserveRequest struct {
	Engine      handoff.EngineID
	Incarnation handoff.Incarnation
	Attempt     handoff.Attempt
	Blocks      uint32
	Lease       time.Duration
}

// Validate refuses a field that is missing or out of its limit.
func (r ReserveRequest) Validate() error {
	if err := ValidatePromise(r.Engine, r.Attempt); err != nil {
		return err
	}
	if r.Incarnation == 0 {
		return handoff.Errorf(handoff.CodeInvalid, "incarnation is zero")
	}
	if err := blocks("blocks", r.Blocks); err != nil {
		return err
	}
	return within("lease", r.Lease, handoff.LeaseMin, handoff.LeaseMax)
}

// RebuildRequest is what an engine's daemon holds, and the engine's blocks in
// all. A daemon's list read before a release may bring that promise back; it
// then ends with its lease.
type RebuildRequest struct {
	Engine      handoff.EngineID
	Incarnation handoff.Incarnation
	Total       uint32
	Held        map[handoff.Attempt]uint32
	Lease       time.Duration
}

// Validate refuses a field that is missing or out of its limit.
func (r RebuildRequest) Validate() error {
	if len(r.Held) > MaxPromises {
		return handoff.Errorf(handoff.CodeTooLarge, "%d promises, want at most %d", len(r.Held), MaxPromises)
	}
	if r.Incarnation == 0 {
		return handoff.Errorf(handoff.CodeInvalid, "incarnation is zero")
	}
	if err := blocks("total", r.Total); err != nil {
		return err
	}
	for a, n := range r.Held {
		if err := ValidatePromise(r.Engine, a); err != nil {
			return err
		}
		if err := blocks("blocks", n); err != nil {
			return err
		}
	}
	if err := handoff.ValidateID("engine", string(r.Engine)); err != nil {
		return err
	}
	return within("lease", r.Lease, handoff.LeaseMin, handoff.LeaseMax)
}

// ValidatePromise checks what names a promise.
func ValidatePromise(engine handoff.EngineID, a handoff.Attempt) error {
	if err := handoff.ValidateID("engine", string(engine)); err != nil {
		return err
	}
	return a.Validate()
}

// ValidateRenewal checks the arguments of Renew.
func ValidateRenewal(engine handoff.EngineID, as []handoff.Attempt, lease time.Duration) error {
	if len(as) > MaxRenewals {
		return handoff.Errorf(handoff.CodeTooLarge, "%d renewals, want at most %d", len(as), MaxRenewals)
	}
	if err := handoff.ValidateID("engine", string(engine)); err != nil {
		return err
	}
	for _, a := range as {
		if err := a.Validate(); err != nil {
			return err
		}
	}
	return within("lease", lease, handoff.LeaseMin, handoff.LeaseMax)
}

func blocks(field string, n uint32) error {
	if n == 0 || n > MaxBlocks {
		return handoff.Errorf(handoff.CodeInvalid, "%s is %d, want 1..%d", field, n, MaxBlocks)
	}
	return nil
}
