package placement

import (
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
)

const (
	// LoadStale is the age from which an engine's load is unknown.
	LoadStale = 5 * time.Second
	// UnknownSeconds is added to the worst known time where none is known.
	UnknownSeconds = 1.0
	// UnknownShare is added to the occupied share of a D whose load is unknown:
	// it goes behind every D that is known.
	UnknownShare = 1.0
)

// Fleet is one view of the engines. Only Engines is needed.
type Fleet struct {
	Engines []ledger.Registered
	// Links are measured pairs; a pair that is not there is unknown.
	Links map[Link]Measured
	// InFlight are prompt tokens that this process sent to an engine and that
	// its last load cannot tell yet.
	InFlight map[handoff.EngineID]uint64
	// Layouts remembers plans from layout to layout; nil: each is made anew.
	Layouts *Layouts
	// Blocked says who may not be asked now; nil: nobody is blocked.
	Blocked Blocker
}

// Blocker is what placement asks of Breakers.
type Blocker interface {
	EngineBlocked(handoff.EngineID) bool
	LinkBlocked(Link) bool
}

// Link is the way from a P to a D.
type Link struct{ P, D handoff.EngineID }

// Measured is what was seen of a link.
type Measured struct {
	Setup          time.Duration
	BytesPerSecond float64
}

// Request is what is to be placed.
type Request struct {
	Model    string
	Revision string // empty: any, but P's and D's are equal
	// PromptTokens are to be prefilled; GrowthTokens is what the decode may add,
	// a conservative quantile; ContextTokens is the most that both can reach.
	PromptTokens, GrowthTokens, ContextTokens uint32
	// StateBytes is what the handoff moves; 0: unknown.
	StateBytes uint64
	// Deadline is what is left for the first token; 0: none.
	Deadline time.Duration
	// PinP and PinD are the caller's choice; empty: ours.
	PinP, PinD handoff.EngineID
	// Exclude are the engines of earlier epochs. They come back only when
	// nothing else is left.
	Exclude []handoff.EngineID
}

// blocks is what the request needs on e, in 64 bits: no sum wraps.
func (r Request) blocks(e ledger.Registered) uint64 {
	return (uint64(r.PromptTokens) + uint64(r.GrowthTokens) + uint64(e.BlockTokens) - 1) / uint64(e.BlockTokens)
}

// load is e's load when it is known and fresh.
func load(e ledger.Registered) (ledger.Load, bool) {
	if e.Load == nil || e.Age > LoadStale {
		return ledger.Load{}, false
	}
	return *e.Load, true
}

// occupied is what is promised or live on e: promises are made before the
// engine allocates and last while it decodes, so the two overlap and the larger
// counts. Known is false when the engine's own word is missing.
func occupied(e ledger.Registered) (blocks uint64, known bool) {
	l, known := load(e)
	if known && l.BlocksFree < e.Blocks {
		return uint64(max(e.Used, e.Blocks-l.BlocksFree)), true
	}
	return uint64(e.Used), known
}
