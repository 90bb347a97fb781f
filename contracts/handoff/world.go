package handoff

// World is what somebody who sees everything sees at one instant, with what
// happened since the instant before. The explorer builds it from its model,
// chaos checkers from real processes; whoever cannot see a part leaves it
// empty, and the invariants that need it hold trivially.
type World struct {
	Visible   []VisibleTarget // at engines, not in TD's table
	Tokens    []Delivery      // what the client has, in order
	Targets   []TargetFact
	Sources   []SourceFact
	Ledgers   []LedgerFact
	Writes    []Write   // operations that wrote target memory
	Frees     []Free    // source memory given back
	Reads     []Read    // operations posted on source memory
	Answers   []Answer  // to Commit
	Undone    []Attempt // committed attempts that an undo took back
	Rest      bool      // no open workflow and no live decode, everything reclaimed by now
	Held      int       // reservations, grants, pins, registrations beyond the baseline
	Cancelled bool      // history has the client's cancel
	KeyFree   bool      // the handoff ended as one that may be submitted anew
}

// Origin tells whose computation produced a piece; zero: nothing landed.
type Origin uint64

// VisibleTarget is one attempt that an engine may read.
type VisibleTarget struct {
	Attempt  Attempt
	Node     NodeID
	Want     Origin   // of this attempt's own body
	Pieces   []Origin // what lies in the memory
	Verified bool
	Sealed   Digest // by P; zero: not known
	Checked  Digest // by D
	GivenUp  bool   // by the reader that history names, or a plan rests on it
	Refused  bool   // somebody was told that it is closed, for good
	Late     bool   // planned after the cancel was recorded
}

// Delivery is one token that the client has.
type Delivery struct {
	Attempt  Attempt
	Position uint32
}

// TargetFact is one record of a TD.
type TargetFact struct {
	Attempt Attempt
	Node    NodeID
	State   TargetState
	Left    uint32
	Posted  int
	Highest Epoch
	Freed   bool
}

// SourceFact is one record of a TP.
type SourceFact struct {
	Attempt Attempt
	State   SourceState
	Posted  int
	Freed   bool
	Drained bool
}

// LedgerFact is one engine's account.
type LedgerFact struct{ Total, Used, Free uint32 }

// Write is one operation that landed: under which tenancy it was posted, and
// whether the memory is still that tenancy's.
type Write struct {
	Attempt Attempt
	Current bool
}

// Free is source memory given back while Readers could still read it under a
// grant of the incarnation that lives.
type Free struct {
	Attempt Attempt
	Readers int
}

// Read is one read posted on source memory; Gone says that the incarnation
// which granted it lives and has given the memory back.
type Read struct {
	Attempt Attempt
	Gone    bool
}

// Answer is what a Commit was told, and the state at that instant.
type Answer struct {
	Attempt   Attempt
	Committed bool
	State     TargetState
}
