package handoff

import "time"

// Specification constants: every process of one deployment must agree on them.
const (
	// MaxIDBytes bounds handoff, engine and node ids.
	MaxIDBytes = 64
	// MaxEpoch bounds the attempts of one handoff that a daemon will record.
	MaxEpoch Epoch = 64
	// MaxGroups bounds the cache groups of a shape.
	MaxGroups = 32
	// MaxItems bounds the state items of a shape.
	MaxItems = 64
	// MaxPieces bounds the pieces of one handoff: 2 Mi pieces is a prompt of
	// 2 M tokens in 16-token blocks with 16 layers.
	MaxPieces = 2 << 20
	// MaxPieceBytes bounds one piece: one slice of the wire (L6).
	MaxPieceBytes = 4 << 20
	// MaxPromptTokens bounds a prompt.
	MaxPromptTokens = 2 << 20
	// MaxNameBytes bounds group names, item classes and revisions.
	MaxNameBytes = 128
)

// Lease arithmetic (rule 24). The grantor counts from after it answered, the
// holder from before it asked, and the holder stops at HolderShare of it.
const (
	LeaseDefault  = 6 * time.Second
	LeaseMin      = 50 * time.Millisecond
	LeaseMax      = 10 * time.Minute
	RenewalShare  = 4 // renew every lease/4: 1.5 s of 6 s
	HolderPercent = 80
)

// ProgressDeadline is how long a transfer may go without a new byte (rule 26).
const ProgressDeadline = 2 * time.Second

// OverlapTokens is the prompt length from which on it pays that D reads while P still
// computes, as task bench:overlap finds it. Below it P announces once, when all is
// computed, and the orchestrator lets the pull begin only then. Both go by this one
// constant unless they are told another (--serial-below).
const OverlapTokens = 512

// MaxEpochsBeforeFirstToken is how often a handoff may be planned by default.
const MaxEpochsBeforeFirstToken Epoch = 3

// Table limits of one daemon (S17): over them it refuses, before any prefill.
const (
	MaxTargets    = 16384
	MaxSources    = 16384
	MaxTombstones = 1 << 20
	// MaxReaderAttempts bounds what one stream's reader records.
	MaxReaderAttempts = 2 * int(MaxEpoch)
)
