// Package client is how other processes speak to a transferd.
//
// An engine uses Memory and Engine: it makes its KV memory as a sealed memfd,
// attaches, opens sources and targets in it and obeys the events. Its duties:
//
//  1. Decode from a target only after TargetCommitted for that attempt.
//  2. Take the blocks of a target or source back only after TargetDrained or
//     SourceDrained for that attempt, which comes exactly once and always after
//     the attempt is over; then call Freed. An Open that was refused by the
//     daemon (any code but CodeUnavailable) never held the blocks. After
//     CodeUnavailable the outcome is unknown: wait for the Drained event, which
//     FinishTarget or CloseSource hastens.
//  3. Never write an announced piece again while its source is open.
//  4. Stop decoding at TargetAborted.
//
// The daemon may die and come back: Engine re-attaches by itself with the same
// memory and flag page. Targets that were committed stay committed; everything
// else of the old daemon is over, and drained, because the only process that
// touched the memory is dead. Events say so one by one after Reattached.
//
// An orchestrator uses Control. Every operation of either may be repeated: a
// repeat under the same attempt has no second effect and answers the present
// state. All errors are *handoff.Error.
package client
