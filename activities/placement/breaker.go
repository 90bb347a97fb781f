package placement

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/surehand/surehand/contracts/handoff"
)

const (
	// FailuresToOpen in a row open a breaker.
	FailuresToOpen = 3
	// FailureOpen is how long it stays open before one probe is let through.
	FailureOpen = 5 * time.Second
	// IntegrityOpen is how long a P whose bytes differed from what it sealed is
	// out, after that one failure.
	IntegrityOpen = 5 * time.Minute
	// ProbeLost is when a probe whose permit nobody settled counts as failed, so
	// that a forgotten one cannot shut an engine out for good.
	ProbeLost = time.Minute
	// MaxBreakers bounds the table. Only what has failed has a breaker.
	MaxBreakers = 16384
)

// Breakers keep one breaker per engine and per link that has failed (gobreaker).
// They are one process's experience. Safe for concurrent use.
type Breakers struct {
	onChange func(name, to string)

	mu    sync.Mutex
	table map[Link]*breaker // an engine's own: Link{P: engine}
}

type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	taken atomic.Pointer[time.Time] // of the last permit
}

func (br *breaker) take() (func(error), error) {
	done, err := br.Allow()
	if err == nil {
		now := time.Now()
		br.taken.Store(&now)
	}
	return done, err
}

var _ Blocker = (*Breakers)(nil)

// NewBreakers makes closed ones. onChange, may be nil, hears each change (for
// metrics); it must not call back.
func NewBreakers(onChange func(name, to string)) *Breakers {
	return &Breakers{onChange: onChange, table: map[Link]*breaker{}}
}

func engineKey(e handoff.EngineID) Link { return Link{P: e} }

func (l Link) name() string {
	if l.D == "" {
		return string(l.P)
	}
	return string(l.P) + ">" + string(l.D)
}

// EngineBlocked says that e may not be asked now: open, or its probe is out.
func (b *Breakers) EngineBlocked(e handoff.EngineID) bool { return b.blocked(engineKey(e)) }

// LinkBlocked says the same of a link.
func (b *Breakers) LinkBlocked(l Link) bool { return b.blocked(l) }

func (b *Breakers) blocked(k Link) bool {
	br := b.find(k)
	if br == nil {
		return false
	}
	switch br.State() {
	case gobreaker.StateOpen:
		return true
	case gobreaker.StateHalfOpen:
		c := br.Counts()
		probing := c.Requests > c.TotalExclusions
		if at := br.taken.Load(); probing && at != nil && time.Since(*at) > ProbeLost {
			b.reopen(k, FailureOpen, handoff.CodeUnavailable)
		}
		return probing
	}
	return false
}

func (b *Breakers) find(k Link) *breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table[k]
}

func (b *Breakers) make(k Link, open time.Duration, failures uint32) *breaker {
	return &breaker{TwoStepCircuitBreaker: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        k.name(),
		MaxRequests: 1,
		Timeout:     open,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failures },
		IsExcluded:  func(err error) bool { return err != nil && !counts(handoff.CodeOf(err)) },
		OnStateChange: func(name string, _, to gobreaker.State) {
			if b.onChange != nil {
				b.onChange(name, to.String())
			}
		},
	})}
}

// counts says whether a code is a failure of an engine or link at all. The
// others are refusals that a healthy one gives, or the client's.
func counts(c handoff.Code) bool {
	switch c {
	case handoff.CodeUnavailable, handoff.CodeEngine, handoff.CodeProgress,
		handoff.CodeIntegrity, handoff.CodeNotValidated, handoff.CodeInternal:
		return true
	}
	return false
}

// Blame says whose failure it was.
type Blame uint8

const (
	BlameP Blame = 1 << iota
	BlameD
	BlameLink
)

// Permit is the right to try one P and D; Done must be called once.
type Permit struct {
	b    *Breakers
	keys [3]Link // in Blame's order
	done [3]func(error)
}

// Take asks the breakers of P, D and their link. CodeUnavailable, and nothing
// taken, when one is open or its probe is out.
func (b *Breakers) Take(p, d handoff.EngineID) (*Permit, error) {
	t := &Permit{b: b, keys: [3]Link{engineKey(p), engineKey(d), {p, d}}}
	for i, k := range t.keys {
		br := b.find(k)
		if br == nil {
			continue
		}
		done, err := br.take()
		if err != nil {
			t.settle(errNotTried, 0)
			return nil, handoff.Errorf(handoff.CodeUnavailable, "%s: %v", k.name(), err)
		}
		t.done[i] = done
	}
	return t, nil
}

// errNotTried counts for nobody.
var errNotTried = handoff.Errorf(handoff.CodeClosed, "not tried")

// Done tells how it went. No error is all three's success; a failure is the
// blamed ones', and says nothing about the rest. Integrity is always P's, and
// opens its breaker at once.
func (t *Permit) Done(err error, blame Blame) {
	if handoff.CodeOf(err) == handoff.CodeIntegrity {
		t.settle(errNotTried, 0)
		t.b.reopen(t.keys[0], IntegrityOpen, handoff.CodeIntegrity)
		return
	}
	t.settle(err, blame)
}

func (t *Permit) settle(err error, blame Blame) {
	for i, k := range t.keys {
		result := err
		if err != nil && blame&(1<<i) == 0 {
			result = errNotTried
		}
		if t.done[i] != nil {
			t.done[i](result)
		} else if counts(handoff.CodeOf(result)) {
			t.b.fail(k, result)
		}
		t.done[i] = nil
	}
}

// fail counts a failure of what had no breaker when it was tried.
func (b *Breakers) fail(k Link, err error) {
	b.mu.Lock()
	br := b.table[k]
	if br == nil && b.room() {
		br = b.make(k, FailureOpen, FailuresToOpen)
		b.table[k] = br
	}
	b.mu.Unlock()
	if br == nil {
		return // the table is full of open breakers; this one stays unknown
	}
	if done, refused := br.take(); refused == nil {
		done(err)
	}
}

// reopen puts a fresh breaker in place, open: whoever is still trying under the
// old one cannot close it.
func (b *Breakers) reopen(k Link, open time.Duration, code handoff.Code) {
	br := b.make(k, open, 1)
	if done, err := br.take(); err == nil { // a fresh one is closed
		done(handoff.Errorf(code, "%s", k.name()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table[k] == nil && !b.room() {
		for other := range b.table {
			delete(b.table, other) // bytes that differ weigh more than any failure
			break
		}
	}
	b.table[k] = br
}

// room makes place by dropping breakers that are closed.
func (b *Breakers) room() bool {
	if len(b.table) < MaxBreakers {
		return true
	}
	for k, br := range b.table {
		if br.State() == gobreaker.StateClosed {
			delete(b.table, k)
		}
	}
	return len(b.table) < MaxBreakers
}
