package handoff

import (
	"errors"
	"fmt"
)

// Advice says what the caller of a refused operation may do. It is the only
// thing that control flow may branch on besides the code itself.
type Advice uint8

const (
	// RetrySame: the same operation id may be asked again, same epoch.
	RetrySame Advice = iota + 1
	// NewEpoch: this attempt is lost; once proved closed, another may be planned.
	NewEpoch
	// GiveUp: end the handoff with this error.
	GiveUp
	// CallOperator: something that must not happen happened; end and alert.
	CallOperator
)

func (a Advice) String() string {
	return [...]string{"none", "retry-same-epoch", "new-epoch", "give-up", "operator"}[a]
}

// Code is the kind of a refusal. Codes are few; Detail tells the instance.
type Code uint8

const (
	CodeNone Code = iota
	CodeNotReady
	CodeUnavailable
	CodeStaleEpoch
	CodeStaleIncarnation
	CodeStaleToken
	CodeConflict
	CodeClosed
	CodeAborted
	CodeCapacity
	CodeMismatch
	CodeIntegrity
	CodeNotValidated
	CodeProgress
	CodeLease
	CodeEngine
	CodeInvalid
	CodeTooLarge
	CodeDenied
	CodeKeyReused
	CodeCancelled
	CodeDeadline
	CodeOutcomeUnknown
	CodeStreamBroken
	CodeGone
	CodeReset
	CodeInternal
	codeEnd
)

var codes = [codeEnd]struct {
	name   string
	advice Advice
	about  string
}{
	CodeNone:             {"none", GiveUp, "no error"},
	CodeNotReady:         {"not_ready", RetrySame, "the operation's precondition does not hold yet; never recorded as an answer (rule 8)"},
	CodeUnavailable:      {"unavailable", RetrySame, "no answer, or the peer cannot serve now; the result is unknown (rule 23)"},
	CodeStaleEpoch:       {"stale_epoch", NewEpoch, "a higher epoch of this handoff was seen (S3)"},
	CodeStaleIncarnation: {"stale_incarnation", NewEpoch, "the plan names another life of this daemon (rule 17)"},
	CodeStaleToken:       {"stale_token", NewEpoch, "the fencing token is not the slot's owner (S4)"},
	CodeConflict:         {"conflict", NewEpoch, "the same epoch under another nonce or plan (rule 6)"},
	CodeClosed:           {"closed", NewEpoch, "this attempt is closed and was never committed; final"},
	CodeAborted:          {"aborted", GiveUp, "this attempt was committed and then released; final"},
	CodeCapacity:         {"capacity", NewEpoch, "no room for the whole of it (S17); nothing was taken"},
	CodeMismatch:         {"mismatch", NewEpoch, "layout, revision, shape or state items of P and D differ (S7)"},
	CodeIntegrity:        {"integrity", NewEpoch, "bytes differ from the sealed digests (rule 28)"},
	CodeNotValidated:     {"not_validated", NewEpoch, "P did not hold the grant without a gap (rule 12)"},
	CodeProgress:         {"progress", NewEpoch, "no new byte within the progress deadline (rule 26)"},
	CodeLease:            {"lease_expired", NewEpoch, "the lease ended before the step did"},
	CodeEngine:           {"engine", NewEpoch, "the engine refused or broke"},
	CodeInvalid:          {"invalid", GiveUp, "a field is malformed; the detail names it and its limit"},
	CodeTooLarge:         {"too_large", GiveUp, "a limit is exceeded; the detail names it"},
	CodeDenied:           {"denied", GiveUp, "the capability, identity or peer is not the right one (S15)"},
	CodeKeyReused:        {"key_reused", GiveUp, "the idempotency key was used with another body (S13)"},
	CodeCancelled:        {"cancelled", GiveUp, "the client cancelled"},
	CodeDeadline:         {"deadline", GiveUp, "the request's deadline passed"},
	CodeOutcomeUnknown:   {"outcome_unknown", GiveUp, "the old attempt cannot be proved closed, so no other may be made (rule 5)"},
	CodeStreamBroken:     {"stream_broken", GiveUp, "the decode failed after the first token; never re-sampled (S10)"},
	CodeGone:             {"gone", GiveUp, "the position asked for is no longer held"},
	CodeReset:            {"reset", GiveUp, "a reset run never plans or commits (rule 13)"},
	CodeInternal:         {"internal", CallOperator, "an invariant does not hold"},
}

func (c Code) String() string {
	if c >= codeEnd {
		return "code_out_of_range"
	}
	return codes[c].name
}

// Advice says what the caller may do about c.
func (c Code) Advice() Advice {
	if c >= codeEnd {
		return CallOperator
	}
	return codes[c].advice
}

// About is one line for people.
func (c Code) About() string {
	if c >= codeEnd {
		return "not a code"
	}
	return codes[c].about
}

// Codes lists every code but CodeNone, for docs and metrics.
func Codes() []Code {
	out := make([]Code, 0, codeEnd-1)
	for c := CodeNone + 1; c < codeEnd; c++ {
		out = append(out, c)
	}
	return out
}

// ParseCode is the inverse of String; an unknown name is CodeInternal, so that
// an error of a newer peer is never taken for a retryable one.
func ParseCode(s string) Code {
	for c := range codes {
		if codes[c].name == s {
			return Code(c)
		}
	}
	return CodeInternal
}

// Error is a typed refusal. Detail is for people and never holds prompt text.
type Error struct {
	Code   Code
	Detail string
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Code.String()
	}
	return e.Code.String() + ": " + e.Detail
}

// Is reports equality of codes, so errors.Is(err, &Error{Code: c}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes a typed refusal.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Detail: fmt.Sprintf(format, args...)}
}

// CodeOf gives the code of err: CodeNone for nil, CodeUnavailable for an error
// that carries none, because an untyped failure says nothing about what was
// done (rule 23: unknown is a result).
func CodeOf(err error) Code {
	if err == nil {
		return CodeNone
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeUnavailable
}
