package handoff

// ReaderState is what the reader of one attempt's stream decided, for good.
type ReaderState uint8

const (
	ReaderUndecided ReaderState = iota
	ReaderDelivering
	ReaderGivenUp
)

func (s ReaderState) String() string { return [...]string{"undecided", "delivering", "given-up"}[s] }

// Reading is the fence of one client stream at its reader: rule 5(c). Its owner
// holds one lock over the test and the record; the byte is written only after.
// The zero value is ready.
type Reading struct {
	Omit Omitted // only the explorer sets it

	state      map[Attempt]ReaderState
	delivering *Attempt
}

// Deliver asks for leave to write bytes of a to the client. It records
// *delivering* before the first byte is written; the answer false means that
// the byte must be dropped, whenever it was read.
func (r *Reading) Deliver(a Attempt) bool {
	if r.state[a] == ReaderGivenUp {
		return false
	}
	if r.delivering != nil && *r.delivering != a {
		return false // bytes of one attempt only
	}
	if r.Omit.Has(RuleReaderRecords) {
		return true
	}
	r.set(a, ReaderDelivering)
	r.delivering = &a
	return true
}

// GiveUp asks that no byte of a is ever delivered. It records before it
// answers; if a is being delivered already, the asker must go on with a.
func (r *Reading) GiveUp(a Attempt) ReaderState {
	if r.state[a] != ReaderUndecided {
		return r.state[a]
	}
	if r.Omit.Has(RuleReaderAnswers) {
		return ReaderGivenUp
	}
	r.set(a, ReaderGivenUp)
	return ReaderGivenUp
}

// State tells what was decided about a.
func (r *Reading) State(a Attempt) ReaderState { return r.state[a] }

// Delivering is the attempt whose bytes the client gets, nil before the first.
func (r *Reading) Delivering() *Attempt { return r.delivering }

func (r *Reading) set(a Attempt, s ReaderState) {
	if r.state == nil {
		r.state = map[Attempt]ReaderState{}
	}
	r.state[a] = s
}
