package rpc

import (
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

// TargetState to the wire: both enumerations count alike.
func TargetState(s handoff.TargetState) transferv1.TargetState { return transferv1.TargetState(s) }

// FromTargetState reads a state; one that this version does not know is an error,
// never a guess.
func FromTargetState(s transferv1.TargetState) (handoff.TargetState, error) {
	if s < 0 || s > transferv1.TargetState_TARGET_STATE_ABORTED {
		return handoff.TargetUnknown, handoff.Errorf(handoff.CodeInternal, "target state %d is not known here", s)
	}
	return handoff.TargetState(s), nil
}

// SourceState to the wire.
func SourceState(s handoff.SourceState) transferv1.SourceState { return transferv1.SourceState(s) }

// FromSourceState reads a state; one that this version does not know is an error.
func FromSourceState(s transferv1.SourceState) (handoff.SourceState, error) {
	if s < 0 || s > transferv1.SourceState_SOURCE_STATE_CLOSED {
		return handoff.SourceUnknown, handoff.Errorf(handoff.CodeInternal, "source state %d is not known here", s)
	}
	return handoff.SourceState(s), nil
}

// Attempts to the wire.
func Attempts(list []handoff.Attempt) []*transferv1.Attempt {
	out := make([]*transferv1.Attempt, len(list))
	for i, a := range list {
		out[i] = Attempt(a)
	}
	return out
}

// FromAttempts reads a list and refuses a malformed attempt.
func FromAttempts(list []*transferv1.Attempt) ([]handoff.Attempt, error) {
	var out []handoff.Attempt
	for _, m := range list {
		a, err := FromAttempt(m)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// FromDigest reads a 32-byte digest; field names it in the error.
func FromDigest(field string, b []byte) (handoff.Digest, error) { return digest(field, b) }
