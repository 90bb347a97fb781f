package handoff

import "time"

// SourceState is the state of one attempt at the transferd that owns the source
// memory (TP).
//
//	         Open          Seal
//	Unknown ──────▶ Opened ─────▶ Sealed
//	   │ Undo,        │ Undo, Release, │ Expire, Preempt, Finish
//	   ▼ Release      ▼                ▼
//	Closed ◀────────────────────────────
//
// Closed is final. Validated is a second axis: TP once said yes to the question
// of this attempt, so its target may commit at any later time.
type SourceState uint8

const (
	SourceUnknown SourceState = iota
	SourceOpened
	SourceSealed
	SourceClosed
	sourceStates
)

var sourceStateNames = [sourceStates]string{"unknown", "opened", "sealed", "closed"}

func (s SourceState) String() string {
	if s >= sourceStates {
		return "out_of_range"
	}
	return sourceStateNames[s]
}

// SourceEvent is what can happen to a source.
type SourceEvent uint8

const (
	SourceOpen     SourceEvent = iota // the engine begins the prefill; the grant is minted
	SourceAnnounce                    // a piece is written, finally, with its digest (rule 11)
	SourceSeal                        // the manifest is frozen
	SourceRead                        // the grant's holder begins to read a piece
	SourceReadDone                    // that read ended
	SourceQuestion                    // the validated read (rule 12)
	SourceFinish                      // the holder's word: I stopped and will start no more
	SourceUndo
	SourceRelease
	SourceRenew
	SourceExpire  // Tick: the grant's lease ended
	SourcePreempt // the engine rewrites or drops the state (rule 11)
	SourceDestroy // the holder's connection is destroyed, or the holder is dead
	sourceEvents
)

var sourceEventNames = [sourceEvents]string{"open", "announce", "seal", "read", "read-done", "question", "finish",
	"undo", "release", "renew", "expire", "preempt", "destroy"}

func (e SourceEvent) String() string {
	if e >= sourceEvents {
		return "out_of_range"
	}
	return sourceEventNames[e]
}

// Lane tells who can stop a reader of a grant (rule 10).
type Lane uint8

const (
	// LaneServed: TP serves each read (tcp), or can destroy the holder's right
	// (rdma): once closed and at zero, nobody can start another.
	LaneServed Lane = iota
	// LaneLocal: the holder reads by itself (shared mapping): only its own word,
	// or its death, ends its reads.
	LaneLocal
)

// Source is TP's record of one attempt.
type Source struct {
	Plan      Plan
	State     SourceState
	Shape     Shape
	Grant     GrantID
	Lane      Lane
	Posted    int      // reads in flight
	Announced []uint64 // bitmap over pieces
	Digests   []uint32 // CRC32C of each announced piece
	Left      uint32   // pieces not announced
	Manifest  Digest   // of the sealed manifest
	Validated bool     // a yes was recorded; survives Closed
	Stopped   bool     // the holder's word, or its death; a read after it takes it back
	Freed     bool     // the engine took its blocks back
	Cause     Code
	End       Instant
}

// Drained says that nobody reads and nobody can start another read (rule 10).
func (s *Source) Drained() bool {
	return s.State == SourceClosed && s.Posted == 0 && (s.Lane == LaneServed || s.Stopped)
}

// Quarantined says that the grant is over while a read may go on.
func (s *Source) Quarantined() bool { return s.State == SourceClosed && !s.Drained() }

// HasAnnounced says whether piece i may be read.
func (s *Source) HasAnnounced(i uint32) bool {
	return int(i/64) < len(s.Announced) && s.Announced[i/64]&(1<<(i%64)) != 0
}

// Sealed gives the manifest; ok only once it is sealed and not freed.
func (s *Source) Sealed() (Manifest, bool) {
	if s.Manifest.IsZero() || s.Freed {
		return Manifest{}, false
	}
	return Manifest{Attempt: s.Plan.Attempt, Shape: s.Shape, Digests: s.Digests}, true
}

// SourceInput is one event with what it carries.
type SourceInput struct {
	Event    SourceEvent
	Attempt  Attempt
	P        Seat          // Open, Undo, Release, Question: incarnation in the plan (rule 17)
	Plan     *Plan         // Open
	Shape    *Shape        // Open
	Lane     Lane          // Open
	Grant    GrantID       // Read, ReadDone, Question, Finish, Renew, Destroy
	Piece    uint32        // Announce, Read
	Count    uint32        // Read, ReadDone: so many at once, of Read from Piece on; zero is one
	Digest   uint32        // Announce
	Manifest Digest        // Question
	Nonce    Nonce         // Question; echoed with the yes
	Lease    time.Duration // Open, Renew
	Cause    Code          // Preempt
}

// SourceAnswer is the present state after an event.
type SourceAnswer struct {
	State     SourceState
	Validated bool
	Code      Code
	Detail    string
	Grant     GrantID
	Changed   bool
}

// Err gives the refusal as an error, nil when accepted.
func (a SourceAnswer) Err() error {
	if a.Code == CodeNone {
		return nil
	}
	return &Error{Code: a.Code, Detail: a.Detail}
}

// NeverValidated is the proof of rule 5(b): closed, and no yes was ever said.
func (a SourceAnswer) NeverValidated() bool {
	return a.Code == CodeNone && a.State == SourceClosed && !a.Validated
}
