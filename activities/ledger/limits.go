package ledger

import "time"

// Limits of one ledger (S17). Over them it refuses; it never grows past them.
const (
	// MaxEngines bounds the registry.
	MaxEngines = 1024
	// MaxPromises bounds the promises of one engine, and a Rebuild's list: as many
	// handoffs as one gateway follows.
	MaxPromises = 1 << 14
	// MaxTombstones bounds the tombstones of one engine. Past it the oldest go:
	// a late reserve then holds a promise for one lease.
	MaxTombstones = 4096
	// MaxRenewals bounds the attempts of one Renew.
	MaxRenewals = 1024
	// MaxKeyBytes bounds an idempotency key, which callers hash.
	MaxKeyBytes = 128
	// MaxAddressBytes bounds an address of a registration.
	MaxAddressBytes = 256
	// MaxLayoutBytes bounds the layout of a registration.
	MaxLayoutBytes = 4096
	// MaxBlocks bounds an engine's total: 16 Mi blocks of 16 tokens.
	MaxBlocks = 1 << 24
)

// How long things live here. None of it is a bound on safety.
const (
	// WindowDefault is how long an idempotency key is remembered.
	WindowDefault = 24 * time.Hour
	// WindowMax bounds it.
	WindowMax = 7 * 24 * time.Hour
	// TombstoneTTL is how long a release or an unclaim that came first still
	// refuses what it undid: longer than a message of ours is under way.
	TombstoneTTL = time.Minute
	// SeatTTL is how long an engine's promises outlive its last operation or
	// registration.
	SeatTTL = time.Hour
	// MarkMax bounds a cancelled mark and a registration.
	MarkMax = time.Hour
	// TTLMin is the shortest window, mark or registration.
	TTLMin = 50 * time.Millisecond
)
