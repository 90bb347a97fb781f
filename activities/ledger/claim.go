package ledger

import (
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// State is where a claim stands.
type State string

const (
	StateClaimed State = "claimed"
	StateSettled State = "settled"
)

// Outcome is how a claimed handoff ended. Every outcome but OutcomeCommitted is
// final: OutcomeCompleted, or the name of the code that ended it after commit.
type Outcome string

const (
	OutcomeCommitted Outcome = "committed"
	OutcomeCompleted Outcome = "completed"
)

// ClaimRequest asks for a key. Key is a digest of the client's own, never the
// client's text; Owner is the gateway process.
type ClaimRequest struct {
	Tenant, Key string
	Body        handoff.Digest
	Handoff     handoff.HandoffID
	Owner       string
	Window      time.Duration
}

// Validate refuses a field that is missing or out of its limit.
func (r ClaimRequest) Validate() error {
	if err := ValidateKey(r.Tenant, r.Key); err != nil {
		return err
	}
	if r.Body.IsZero() {
		return handoff.Errorf(handoff.CodeInvalid, "body digest is zero")
	}
	if err := handoff.ValidateID("handoff", string(r.Handoff)); err != nil {
		return err
	}
	if err := bounded("owner", r.Owner, 1, handoff.MaxNameBytes); err != nil {
		return err
	}
	return within("window", r.Window, TTLMin, WindowMax)
}

// ClaimAnswer tells who holds a key. Mine: the asker's owner and handoff do.
type ClaimAnswer struct {
	Mine    bool
	Handoff handoff.HandoffID
	Owner   string
	State   State
	Outcome Outcome // of StateSettled
}

// SettleRequest records an outcome; Body is there so that a key that the store
// lost can be written anew.
type SettleRequest struct {
	Tenant, Key string
	Body        handoff.Digest
	Handoff     handoff.HandoffID
	Outcome     Outcome
	Window      time.Duration
}

// Validate refuses a field that is missing or out of its limit.
func (r SettleRequest) Validate() error {
	if err := bounded("outcome", string(r.Outcome), 1, handoff.MaxNameBytes); err != nil {
		return err
	}
	return ClaimRequest{r.Tenant, r.Key, r.Body, r.Handoff, "settler", r.Window}.Validate()
}

// ValidateKey checks a tenant and a hashed idempotency key.
func ValidateKey(tenant, key string) error {
	if err := bounded("tenant", tenant, 1, handoff.MaxNameBytes); err != nil {
		return err
	}
	return bounded("key", key, 1, MaxKeyBytes)
}

func bounded(field, s string, least, most int) error {
	if len(s) < least || len(s) > most {
		return handoff.Errorf(handoff.CodeInvalid, "%s has %d bytes, want %d..%d", field, len(s), least, most)
	}
	return nil
}

func within(field string, d, least, most time.Duration) error {
	if d < least || d > most {
		return handoff.Errorf(handoff.CodeInvalid, "%s is %s, want %s..%s", field, d, least, most)
	}
	return nil
}

// ValidateMark checks a handoff and how long its cancelled mark stays.
func ValidateMark(h handoff.HandoffID, ttl time.Duration) error {
	if err := handoff.ValidateID("handoff", string(h)); err != nil {
		return err
	}
	return within("mark", ttl, TTLMin, MarkMax)
}
