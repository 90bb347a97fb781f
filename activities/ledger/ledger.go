package ledger

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Ledger is safe for concurrent use. Its adapters are redisledger and, in
// memory, memledger; ledgertest is the suite that both pass.
type Ledger interface {
	Claims
	Promises
	Registry

	// ClaimAndReserve is Claim, and, when the claim is held and not settled,
	// Reserve, in one round trip. When Claim errs nothing was reserved and the
	// answer is zero. When the answer is Mine and the error is Reserve's, the
	// claim stands: reserve elsewhere, or Unclaim.
	ClaimAndReserve(context.Context, ClaimRequest, ReserveRequest) (ClaimAnswer, error)

	// Finish is Release and Settle in one round trip, not atomic: each is
	// done, and repeatable, whatever becomes of the other. The error is
	// Release's, else Settle's.
	Finish(ctx context.Context, s SettleRequest, engine handoff.EngineID, a handoff.Attempt) error
}

// Claims remember clients' idempotency keys (S13) and cancelled handoffs.
type Claims interface {
	// Claim takes a key for a handoff and owner; the first writer wins, for the
	// window of its claim. A repeat by the same owner and handoff answers Mine;
	// anybody else learns who holds it and how it ended. CodeKeyReused when the
	// key was used with another body; CodeClosed when this handoff's Unclaim
	// came first.
	Claim(context.Context, ClaimRequest) (ClaimAnswer, error)

	// Settle records the outcome. OutcomeCommitted gives way to a final one; the
	// first final one sticks, and a late OutcomeCommitted changes nothing. A key
	// that is not there (the ledger was emptied) is written anew, without an
	// owner. CodeConflict when another handoff holds the key or another final
	// outcome stands; CodeKeyReused when the body differs.
	Settle(context.Context, SettleRequest) error

	// Unclaim frees the key of a handoff that was refused before its commit. A
	// key that is free, or another handoff's, is left alone. CodeConflict when
	// this handoff's outcome is settled: an undo never takes back a commit.
	Unclaim(ctx context.Context, tenant, key string, h handoff.HandoffID) error

	// MarkCancelled notes that the client cancelled. It is a short cut for those
	// who ask Cancelled, never the cancel itself.
	MarkCancelled(ctx context.Context, h handoff.HandoffID, ttl time.Duration) error

	// Cancelled says whether a mark is there. False proves nothing.
	Cancelled(ctx context.Context, h handoff.HandoffID) (bool, error)
}

// Promises account for the blocks of decode engines: a set keyed by attempt,
// free = total − Σ of the set (rule 16, handoff.Capacity).
type Promises interface {
	// Reserve promises blocks to an attempt for a lease; a repeat prolongs the
	// lease and changes nothing else. CodeCapacity, nothing taken, when there is
	// no room for the whole; CodeClosed when the attempt's Release came first;
	// CodeStaleIncarnation when a later life of the node was rebuilt;
	// CodeUnavailable until this life was.
	Reserve(context.Context, ReserveRequest) error

	// Release ends an attempt's promise. A release that comes before its reserve
	// leaves a tombstone for TombstoneTTL.
	Release(ctx context.Context, engine handoff.EngineID, a handoff.Attempt) error

	// Renew prolongs promises to a lease from now and answers those that are
	// not there. A lost promise is no reason to stop anything: the engine's
	// daemon holds the memory, and the next Rebuild brings the promise back.
	Renew(ctx context.Context, engine handoff.EngineID, as []handoff.Attempt, lease time.Duration) (lost []handoff.Attempt, err error)

	// Rebuild takes over the list of the engine's daemon, after which Reserve
	// serves this incarnation: what the daemon holds is promised, whatever was
	// noted before; what it does not know ends with its lease.
	// CodeStaleIncarnation when a later life of the node was rebuilt already.
	Rebuild(context.Context, RebuildRequest) error

	// Born names the life of the store. When it changes, the store was emptied,
	// restarted or failed over, and every engine needs a Rebuild.
	Born(context.Context) (string, error)
}

// Registry knows the engines that serve.
type Registry interface {
	// Register announces an engine for a while; repeated, it is the heartbeat.
	// CodeStaleIncarnation when a later process of this engine registered;
	// CodeCapacity when the registry is full.
	Register(ctx context.Context, e Engine, ttl time.Duration) error

	// Engines lists the registrations that have not ended, by id.
	Engines(context.Context) ([]Registered, error)

	// Deregister ends a registration, unless a later process's stands there.
	Deregister(ctx context.Context, engine handoff.EngineID, process handoff.Incarnation) error
}
