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
	newest     Epoch
	delivering *Attempt
}

// Newest tells the newest planned attempt; older ones count as given up
// (rule 5c, clause 7). A reader that is named later must be told before it reads.
func (r *Reading) Newest(a Attempt) { r.newest = max(r.newest, a.Epoch) }

// Deliver asks for leave to write bytes of a to the client. It records
// *delivering* before the first byte is written; the answer false means that
// the byte must be dropped, whenever it was read.
func (r *Reading) Deliver(a Attempt) bool {
	if r.State(a) == ReaderGivenUp {
		return false
	}
	if r.delivering != nil && *r.delivering != a {
		return false // bytes of one attempt only
	}
	if r.Omit.Has(RuleReaderRecords) {
		return true
	}
	if !r.set(a, ReaderDelivering) {
		return false
	}
	r.delivering = &a
	return true
}

// GiveUp asks that no byte of a is ever delivered. It records before it
// answers; if a is being delivered already, the asker must go on with a.
// ReaderUndecided says that it could not be recorded: it proves nothing.
func (r *Reading) GiveUp(a Attempt) ReaderState {
	if s := r.State(a); s != ReaderUndecided {
		return s
	}
	if r.Omit.Has(RuleReaderAnswers) {
		return ReaderGivenUp
	}
	if !r.set(a, ReaderGivenUp) {
		return ReaderUndecided
	}
	return ReaderGivenUp
}

// Resume gives up an attempt whose bytes were delivered, at the end of what was:
// not one more of it will be, and the client is told so before it gets a byte of
// the next one. False when a was not being delivered, or it cannot be recorded.
func (r *Reading) Resume(a Attempt) bool {
	if r.delivering == nil || *r.delivering != a || !r.set(a, ReaderGivenUp) {
		return false
	}
	r.delivering = nil
	return true
}

// State tells what was decided about a.
func (r *Reading) State(a Attempt) ReaderState {
	if s := r.state[a]; s != ReaderUndecided {
		return s
	}
	if a.Epoch < r.newest {
		return ReaderGivenUp
	}
	return ReaderUndecided
}

// Delivering is the attempt whose bytes the client gets, nil before the first.
func (r *Reading) Delivering() *Attempt { return r.delivering }

// set records, unless as many attempts as one handoff can have are recorded.
func (r *Reading) set(a Attempt, s ReaderState) bool {
	if r.state == nil {
		r.state = map[Attempt]ReaderState{}
	}
	if _, ok := r.state[a]; !ok && len(r.state) >= MaxReaderAttempts {
		return false
	}
	r.state[a] = s
	return true
}
