package handoff

import "time"

// TargetState is the state of one attempt at the transferd that owns the
// target memory (TD).
//
//	          Open      Post        Land(last)  Verify      Yes        Commit
//	Unknown ───▶ Opened ───▶ Running ───▶ Landed ───▶ Verified ───▶ Validated ───▶ Committed
//	   │            │           ▲           │         │             │              │
//	   │            │           └───────────┤         │             │              │
//	   │ Undo,      │       Misverify:      │         │             │              │ Release,
//	   │ Release    │       pull it again   │         │             │              │ Expire,
//	   │            │  Undo, Release, Expire, Supersede, Abandon, No, Finish       │ Finish
//	   ▼            ▼                       ▼         ▼             ▼              ▼
//	Closed ◀──────────────────────────────────────────────────────────          Aborted
//
// Closed (never committed) and Aborted (after commit) are final. Memory is a
// second axis: a final target with posted operations is quarantined, and
// drained when they are zero; only then may the engine free its blocks.
type TargetState uint8

const (
	TargetUnknown TargetState = iota
	TargetOpened
	TargetRunning
	TargetLanded
	TargetVerified
	TargetValidated
	TargetCommitted
	TargetClosed
	TargetAborted
	targetStates
)

var targetStateNames = [targetStates]string{"unknown", "opened", "running", "landed", "verified", "validated", "committed", "closed", "aborted"}

func (s TargetState) String() string {
	if s >= targetStates {
		return "out_of_range"
	}
	return targetStateNames[s]
}

// Final says whether no event leaves s.
func (s TargetState) Final() bool { return s == TargetClosed || s == TargetAborted }

// Live says whether the attempt holds target memory for its own use.
func (s TargetState) Live() bool { return s > TargetUnknown && s < TargetClosed }

// TargetEvent is what can happen to a target.
type TargetEvent uint8

const (
	TargetOpen      TargetEvent = iota // engine allocated; the attempt's memory gets its generation
	TargetPost                         // one operation that will write target memory is posted
	TargetLand                         // a posted operation ended, its piece is in place
	TargetFail                         // a posted operation ended without landing
	TargetVerify                       // all landed and equal to the sealed digests
	TargetMisverify                    // a digest differs: the named piece must be pulled again
	TargetAsk                          // mint the question of the validated read
	TargetYes                          // TP answered yes to this very question
	TargetNo                           // TP answered no
	TargetCommit
	TargetUndo
	TargetRelease
	TargetRenew
	TargetExpire    // Tick: the reservation or decode lease ended
	TargetSupersede // a higher epoch was opened here
	TargetAbandon   // the pull failed for good
	TargetFinish    // the engine says that the decode is over
	TargetDestroy   // the transport's connections are destroyed: nothing posted can land any more
	targetEvents
)

var targetEventNames = [targetEvents]string{"open", "post", "land", "fail", "verify", "misverify", "ask", "yes", "no",
	"commit", "undo", "release", "renew", "expire", "supersede", "abandon", "finish", "destroy"}

func (e TargetEvent) String() string {
	if e >= targetEvents {
		return "out_of_range"
	}
	return targetEventNames[e]
}

// Target is TD's record of one attempt. Fields are read by the daemon and
// changed only by Targets.Step.
type Target struct {
	Plan       Plan
	State      TargetState
	Shape      Shape
	Generation Generation
	Posted     int      // operations that may still write the memory
	Landed     []uint64 // bitmap over pieces
	Left       uint32   // pieces not landed
	Grant      GrantID  // the one grant this generation reads under (rule 11); zero before
	Manifest   Digest   // of the sealed manifest, set by Verify
	Question   Nonce    // of the pull that was verified last; zero before
	Reader     uint32   // highest reader number that renewed the decode (rule 5c)
	Adopted    bool     // read from the flag page after a restart (rule 9)
	Freed      bool     // the engine took its blocks back
	Cause      Code     // why it is closed or aborted
	End        Instant  // of the lease
}

// Drained says that nothing can write the memory any more, so that the engine
// may free it (rules 10, 21, 22).
func (t *Target) Drained() bool { return t.State.Final() && t.Posted == 0 }

// Quarantined says that the attempt is over while an operation may still land.
func (t *Target) Quarantined() bool { return t.State.Final() && t.Posted > 0 }

// HasLanded says whether piece i is in place.
func (t *Target) HasLanded(i uint32) bool {
	return int(i/64) < len(t.Landed) && t.Landed[i/64]&(1<<(i%64)) != 0
}

// Token is τ of this target.
func (t *Target) Token() Token {
	return Token{t.Plan.Attempt, t.Plan.D.Node, t.Plan.D.Incarnation, t.Generation}
}

// TargetInput is one event with what it carries. Attempt is always needed;
// Token wherever an operation acts on open memory.
type TargetInput struct {
	Event    TargetEvent
	Attempt  Attempt
	D        Seat          // Open, Undo, Release, Commit, Renew: incarnation in the plan (rule 17)
	Plan     *Plan         // Open
	Shape    *Shape        // Open
	Token    Token         // Post, Land, Fail, Verify, Ask, Yes, No, Commit
	Piece    uint32        // Land, Misverify
	Count    uint32        // Post, Land, Fail: so many at once, of Land from Piece on; zero is one
	Manifest Digest        // Verify, Yes
	Question Nonce         // Ask (fresh), Yes
	Grant    GrantID       // Post (may be zero), Ask, Yes: one generation reads under one grant
	Cause    Code          // Abandon
	Reader   uint32        // Renew: number of the reader that renews a decode; zero: not a reader
	Lease    time.Duration // Open, Commit, Renew; zero: the table's default
}

// count is how many operations a bulk event stands for. It is the same as so many
// events one after the other.
func count(n uint32) int { return int(max(n, 1)) }

// within says whether n pieces from first on are pieces of s.
func (s Shape) within(first uint32, n int) bool {
	return uint64(first)+uint64(n) <= uint64(s.Pieces())
}

// TargetAnswer is the present state after an event, and why it was refused.
type TargetAnswer struct {
	State   TargetState
	Code    Code
	Detail  string
	Token   Token
	Changed bool // this event moved the state
}

// Err gives the refusal as an error, nil when accepted.
func (a TargetAnswer) Err() error {
	if a.Code == CodeNone {
		return nil
	}
	return &Error{Code: a.Code, Detail: a.Detail}
}
