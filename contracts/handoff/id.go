package handoff

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
)

// HandoffID names one request's handoff for its whole life. It is 1..MaxIDBytes
// characters of [a-z0-9._-] and never reused: it is derived from tenant and
// idempotency key (with the run's nonce once an earlier run ended refused), or random.
type HandoffID string

// EngineID names one engine (a P or D serving process) in the registry.
type EngineID string

// NodeID names one transferd.
type NodeID string

// Epoch is the attempt number of a handoff: 1, 2, … It is decided by the
// workflow and only grows. Zero is never a valid epoch.
type Epoch uint32

// Nonce tells two attempts of equal epoch apart (rule 6). It is random, minted
// by whoever makes the plan, and never zero.
type Nonce uint64

// Incarnation is one life of a process: persisted with fsync before serving,
// +1 at each start. Zero is never valid.
type Incarnation uint64

// Generation is one tenancy of a slot, minted by the transferd that owns the
// memory. It is never mixed with Epoch.
type Generation uint64

// GrantID numbers the grants of one TP incarnation.
type GrantID uint64

func (n Nonce) String() string { return strconv.FormatUint(uint64(n), 16) }

// Digest is a SHA-256 digest of a canonical encoding.
type Digest [32]byte

func (d Digest) String() string { return hex.EncodeToString(d[:6]) }

// IsZero says whether the digest was never set.
func (d Digest) IsZero() bool { return d == Digest{} }

// Attempt identifies one try of a handoff: (r, e, nonce).
type Attempt struct {
	Handoff HandoffID
	Epoch   Epoch
	Nonce   Nonce
}

func (a Attempt) String() string {
	return fmt.Sprintf("%s/e%d/%s", a.Handoff, a.Epoch, a.Nonce)
}

// Compare orders attempts by handoff, epoch and nonce.
func (a Attempt) Compare(b Attempt) int {
	return cmp.Or(cmp.Compare(a.Handoff, b.Handoff), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Nonce, b.Nonce))
}

// Validate refuses an attempt with a missing or oversized field.
func (a Attempt) Validate() error {
	if err := ValidateID("handoff", string(a.Handoff)); err != nil {
		return err
	}
	if a.Epoch == 0 || a.Epoch > MaxEpoch {
		return Errorf(CodeInvalid, "epoch %d out of 1..%d", a.Epoch, MaxEpoch)
	}
	if a.Nonce == 0 {
		return Errorf(CodeInvalid, "nonce is zero")
	}
	return nil
}

// ValidateID checks a HandoffID, EngineID or NodeID; field names it in the error.
func ValidateID(field, id string) error {
	if len(id) == 0 || len(id) > MaxIDBytes {
		return Errorf(CodeInvalid, "%s has %d characters, want 1..%d", field, len(id), MaxIDBytes)
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return Errorf(CodeInvalid, "%s has character %q at %d, want [a-z0-9._-]", field, c, i)
		}
	}
	return nil
}

// Seat is one side of a plan: an engine, the transferd beside it and the
// incarnation of that transferd which the plan was made for (rule 17).
type Seat struct {
	Engine      EngineID
	Node        NodeID
	Incarnation Incarnation
}

// Reader is the one process that history names to deliver an attempt's tokens
// to the client. Number grows with each re-attach.
type Reader struct {
	Process     string
	Incarnation Incarnation
	Number      uint32
}

// Plan is what an attempt will do, fixed for ever (rule 1). The original run
// id, the plan's last field in the protocol's text, travels with each
// operation instead: it is known only once the run exists.
type Plan struct {
	Attempt    Attempt
	P, D       Seat
	Reader     Reader
	BodyDigest Digest
}

// Validate refuses a plan that lacks a field.
func (p Plan) Validate() error {
	if err := p.Attempt.Validate(); err != nil {
		return err
	}
	for _, s := range []struct {
		role string
		seat Seat
	}{{"P", p.P}, {"D", p.D}} {
		if err := ValidateID(s.role+" engine", string(s.seat.Engine)); err != nil {
			return err
		}
		if err := ValidateID(s.role+" node", string(s.seat.Node)); err != nil {
			return err
		}
		if s.seat.Incarnation == 0 {
			return Errorf(CodeInvalid, "%s incarnation is zero", s.role)
		}
	}
	if p.BodyDigest.IsZero() {
		return Errorf(CodeInvalid, "body digest is zero")
	}
	return nil
}

// Token is the fencing token τ that a writer must show: it equals the slot's
// owner in every field or the operation is refused.
type Token struct {
	Attempt     Attempt
	Node        NodeID
	Incarnation Incarnation
	Generation  Generation
}

func (t Token) String() string {
	return fmt.Sprintf("%s@%s.i%d.g%d", t.Attempt, t.Node, t.Incarnation, t.Generation)
}

// OperationID names one operation of one attempt; a repeat under the same id
// has no second effect and answers the present state (rule 8).
type OperationID string

// Operation builds the id of step for attempt a.
func (a Attempt) Operation(step string) OperationID {
	return OperationID(a.String() + "/" + step)
}
