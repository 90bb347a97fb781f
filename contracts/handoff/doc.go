// Package handoff is the protocol by which one request's state, and the right
// to decode it, move from a prefill engine (P) to a decode engine (D). It is a
// pure state machine: no clock, socket, disk, goroutine or randomness. Time
// comes in as an Instant, messages as inputs of Step, answers go out as values.
// This text is the specification; where another text differs, this one wins.
//
// # Usage
//
// A transferd holds a [Targets] for the memory of its D engines and a [Sources]
// for that of its P engines, a gateway holds a [Reading] per client stream, a
// workflow a [Coordinator] per handoff, and a ledger a [Capacity] per engine:
//
//	ans := targets.Step(now, handoff.TargetInput{Event: handoff.TargetCommit, Attempt: a, D: plan.D, Token: tok})
//	if err := ans.Err(); err != nil { return err } // typed: err's Advice says what the caller may do
//
//	for _, cmd := range coordinator.Commands() { start(cmd) } // each gets exactly one Result
//	coordinator.Step(result)
//
// # Words
//
//	handoff      moving one request's state and its right to decode from a P to a D
//	epoch        attempt number of a handoff; decided by the workflow, only grows
//	incarnation  one life of a process; persisted with fsync before serving, +1 on each start
//	generation   one tenancy of a target's memory; minted by the transferd that owns it
//	attempt      (handoff r, epoch e, nonce): one try
//	plan         what an attempt will do, for ever: P, D, their incarnations, body digest, reader
//	reader       the one process (with incarnation and number) that history names to deliver an attempt's tokens
//	token τ      (attempt, node, incarnation, generation): what a writer must show
//	lease        time-bounded right; ends by itself; safety never depends on it
//	reservation  capacity promised on D to an attempt
//	grant        a reader's right to named ranges of P's memory
//	piece        one block of one layer, or one state item: the unit that is announced, read and verified
//	state item   anything besides paged KV that decode needs: ring, SSM state, n-gram history, sampler, first token
//	manifest     what is moved, with a digest for each piece: sealed by P, verified by D
//	announce     P says that a piece is written, for good
//	seal         P freezes the manifest
//	commit       D's transferd accepts it, once: the target turns visible
//	visible      the engine may read the whole; what its flag page says
//	drain        nothing posted, and nobody can start another
//	quarantine   memory of a closed attempt that is not drained yet
//	undo         closes an uncommitted attempt; the inverse of a step
//	release      ends an attempt whatever its state; only what history decided
//	TD, TP       the transferd that owns the target, the source memory
//	W            the workflow, executed by workers
//
// # System model
//
// Processes crash and recover, and may pause for any time. Messages may be
// lost, delayed, duplicated and reordered. Monotonic clocks drift by 1 % at
// most; wall clocks may jump. The ledger may lose a suffix of acknowledged
// writes; history is durable. Bytes may be corrupted in flight or at rest. DMA
// that a process posted goes on while it is stopped and ends when its queue
// pairs, sockets or contexts are destroyed, its death included; that last is an
// assumption that each transport has to prove.
//
// # A target
//
//	         Open      Post        Land(last)  Verify      Yes        Commit
//	unknown ───▶ opened ───▶ running ───▶ landed ───▶ verified ───▶ validated ───▶ committed
//	   │            │           ▲  Misverify │            │             │              │
//	   │ Undo,      │           └────────────┤            │             │              │ Release,
//	   │ Release    │                        │            │             │              │ Expire,
//	   ▼            ▼    Undo, Release, Expire, Supersede, Abandon, No, Finish         │ Finish
//	closed ◀────────────────────────────────────────────────────────────           aborted
//
// closed means never committed; aborted means after commit. Both are final.
// Memory is a second axis: a final target with posted operations is quarantined,
// without any it is drained, and only then may the engine free it.
//
// # A source
//
//	         Open          Seal
//	unknown ──────▶ opened ─────▶ sealed
//	   │ Undo,        │ Undo, Release, │ Expire, Preempt, Finish
//	   ▼ Release      ▼                ▼
//	closed ◀────────────────────────────
//
// validated is a second axis, kept after closed: TP once said yes to the question
// about this attempt, so its target may commit at any later time. A question
// that comes after the lease's end but before TP's sweep closed the source is
// answered yes; after it, no. (The rule would allow yes while still pinned;
// answering no costs an epoch and keeps closed final.)
//
// # A handoff
//
//	moving ──all done──▶ committing ──done──▶ decoding ──ended──▶ closing ─▶ ended
//	   │ a step failed        │ failed            │ lost before      ▲
//	   ▼                      ▼                   ▼ its first token   │ no other epoch,
//	fencing ◀─────────────────────────────────────                    │ or no proof and no other reader;
//	   │ proved closed      ▲ committed: decoding                     │ cancel in any
//	   ▼                    │ the reader changed: ask again           │ phase
//	placing ──another plan──▶ moving (next epoch) ────────────────────
//
// # Messages
//
// Open (W or the head start, to TD through D's engine) reserves the target: the
// engine allocates, TD mints the generation and answers τ. Refused for another
// incarnation, below the highest epoch seen, for an epoch that another nonce
// holds or once committed, for a tombstone, over a limit. A higher epoch closes
// uncommitted lower ones.
//
// Open and Announce (P's engine to TP) mint the grant and make pieces readable,
// each with its digest, for good: other bytes under the same grant are refused.
// Seal freezes the manifest once every piece is announced.
//
// Post, Land, Fail (TD's own operations) count what may still write the memory.
// A target is landed when every piece is in place and nothing posted is left.
// Read, ReadDone (TD to TP) count what may still read. Destroy, on either side,
// is the hard fence: the connection is gone, so nothing posted goes on.
//
// Verify (TD) compares the landed memory with the sealed digests; Misverify names
// a piece that differs and must be read again, under the same grant.
//
// Question (TD to TP) is the validated read, rule 12. TP records validated, then
// says yes; or it says no (No closes the target) because the source is closed.
//
// Commit (W to TD) makes a validated target visible, once, and starts its decode
// lease. A repeat is told the present: committed, aborted or closed.
//
// Undo (W, or a gateway that lost Start; to TD and TP) closes what is not
// committed and leaves a tombstone where nothing is known. TD answers closed
// (proof: never committed), committed (adopt it) or aborted (proves nothing).
// TP's closed is a proof only if it never validated.
//
// Release (W, from history: a cancel, an end, a superseded epoch) is Undo that
// ends a committed target as well. Who cannot record must not send it.
//
// Renew (W and gateway to TD, TD to TP) prolongs a lease. A decode is renewed by
// its reader, under the highest reader number seen.
//
// GiveUp (W to the reader that history names) asks that no byte of the attempt
// is ever delivered. The reader records before it answers: given up, or
// delivering, and then W goes on with that attempt.
//
// Finish (D's engine to TD: the decode is over; TD to TP: I stopped and will
// start no more read) is the holder's own word. Preempt (P's engine) closes the
// source before its memory is dropped or written again. Expire is Tick's.
//
// # Rules
//
//  1. An attempt is (r, e, nonce). Its plan is one for ever: the same attempt with
//     another plan is a conflict. The original run id belongs to it and travels
//     with each operation, since it is known only once the run exists.
//  2. The plan of epoch 1 is in the workflow's input. The plan of a later epoch is
//     completed into history before any operation of it is issued.
//  3. A worker acts only under a plan from history; a gateway only under the plan
//     that it puts into Start, and never sends Commit. The ledger may propose a
//     plan, never resolve one.
//  4. Undo closes an uncommitted attempt and never takes back a commit: the asker
//     adopts it. Release aborts anything; who cannot record must not send it.
//  5. Fence before supersede: epoch e+1 is planned only after the plan of e is
//     proved closed: (a) its TD, same incarnation, answers closed; or (b) its TP,
//     same incarnation, answers closed and never validated; or (c) its reader
//     answers given up. A timeout, another incarnation, or aborted prove nothing:
//     wait for a reader that can answer (clause 8 below), then end with a typed error.
//  6. Nonces are in τ, grants, ledger keys and operation ids. The same epoch with
//     another nonce is a conflict, never a join. A higher epoch closes an
//     uncommitted lower one of any nonce, never a committed one.
//  7. Undo, Release and Revoke of an unknown attempt leave a tombstone, which
//     Open, Prefill, the question and Commit find. Tombstones live as long as the
//     incarnation, or until deadline and budget have passed. A full table of them
//     refuses: without the tombstone, closed would be no proof.
//  8. A repeat has no second effect and answers the present state. Not yet is never
//     recorded as an answer; closed and aborted are final.
//  9. A restarted TD reads the engine's flag page before it serves: visible targets
//     are adopted as committed, all others are closed and freed only then.
//  10. Drained: completions at zero and nobody can start another: the grant's key or
//     connection destroyed (served lanes), or the reader's word that it stopped
//     (local lanes), or its process dead. A read after that word takes it back.
//  11. Announcing is final. Preemption or a second run closes the source; what comes
//     next is a new grant on drained blocks. One generation reads under one grant.
//  12. The question is asked after the sealed manifest and the last byte of this pull
//     are here and verified, with grant, TP's incarnation, manifest digest, τ and a
//     fresh nonce. TP records before it says yes, and says yes only while the same
//     grant is pinned without a gap and the attempt is not closed.
//  13. A reset run never plans or commits: it closes what is not committed and ends
//     with a typed error. The check is in the activities, not in workflow code.
//     Continue-as-new carries plan and epoch. Its key is spent (S13), as is that of
//     a run that was terminated or timed out: an epoch that history forgot, or never
//     said the end of, may have delivered.
//  14. Commit starts the decode lease; the stream's one reader renews it; its end
//     aborts the target, finally.
//  15. Pins are counted per (block, grant).
//  16. The ledger is a set keyed by attempt; free is derived; every entry leases; TD's
//     list wins. Its loss may cost a refusal, nothing else.
//  17. Every message names the incarnation in the plan; another life refuses.
//  18. A cancel goes to planned attempts; the workflow looks for a cancel before it
//     plans. TD's order of Commit and Release decides, and the answer says which; where
//     neither TD, TP nor the reader gives a proof, the key is spent.
//  19. S2 counts visibility at the engine. S5 binds a grantor while its incarnation
//     lives. S6 "never back" means never un-landed; an abort ends visibility.
//  20. D pulls: its memory is written by its own TD only, so the write fence is local.
//     P's grants are read-only. Commit belongs to TD.
//  21. Drain or destroy: memory returns to an engine only on proof, never after T
//     seconds. Expiry ends the right to start, never the duty to drain.
//  22. An engine frees only after its transferd answered drained.
//  23. Unknown is a result: not done, done with an error, done twice.
//  24. The holder of a lease counts from before it asked and stops at 80 %; the
//     grantor counts from after it answered. Monotonic clocks only.
//  25. Incarnations are in every address; a stale one is refused at once.
//  26. A transfer advances its bytes every 2 s or fails and quarantines.
//  27. Undo steps run on a disconnected context, newest first, to the end.
//  28. Digests: a slice's CRC is of what was read; piece digests sealed by P at
//     announce time are what catches a source that changed underneath.
//
// Rule 5(c), the reader's fence, in clauses: 1 a reader is a process with its
// incarnation and number, named by history. 2 it keeps given up or delivering
// per attempt, whichever is first, for good, records delivering before the first
// byte is written, and writes bytes of one attempt only. 3 asked to give up, it
// records, then answers; a repeat gets the present. 4 a worker asks whom history
// names; silence or another incarnation is unknown. 5 the next plan is completed,
// or the handoff ended where none follows, only if history still names who
// answered. 6 once it is, the old attempt is released. 7 a re-attach begins at position 0, the client takes nothing more
// from the older connection, and the new reader is told the newest planned
// attempt: older ones count as given up. 8 where nobody can tell, the handoff
// waits, as long as its first token may take, for a client that comes again: the
// reader that history then names is asked like any. That nobody came proves nothing.
//
// # Safety
//
//	S1   epoch purity          S7   manifest equality     S13  idempotent submit
//	S2   one owner             S8   released once         S14  fail closed
//	S3   epochs only grow      S9   clean at rest         S15  least privilege
//	S4   stale writer harmless S10  one sampling run      S16  tenant wall
//	S5   readers pin           S11  exact boundary        S17  bounded
//	S6   no half-visible state S12  honest path           S18  replay
//
// # Liveness
//
//	L1   every request ends    L4   undo or parked        L7   no head-of-line blocking
//	L2   reclaim               L5   revoke drains         L8   control plane away
//	L3   goodput after heal    L6   bytes after a cancel
//
// Their statements, checks and checkers are [Invariants].
//
// # Obligations of the callers
//
//  1. Persist the incarnation, with fsync, before serving; never serve under an old one.
//  2. Adopt from every flag page before serving (Adopt), and tell the engines the rest is closed.
//  3. Hold one lock around a table; make a Step's state durable where the restart needs it
//     (the flag page) before the answer leaves: record, then answer.
//  4. Check peers, capabilities and sizes before Step; Step checks attempts, tokens and epochs.
//  5. Report every posted operation's end exactly once (Land or Fail), or destroy the
//     connection and report Destroy. On a local lane report Read before ranges are handed out.
//  6. Verify what lies in the memory after it is landed, never only what the wire carried. A
//     comparison at landing does; what changes after it is found by a second reading only,
//     which costs a pass over the state ahead of the first token: an operator's choice.
//  7. Mint each question's nonce after the last byte of its pull; send it with the target's
//     grant, and give Yes only the nonce that the answer echoed.
//  8. Set the flag page before Commit's answer leaves and clear it before Release's does.
//  9. Call Free only when the engine said that it took the blocks back; let engines do so only
//     after Drained.
//  10. Call Tick at NextTick or sooner; a late Tick costs memory, never safety.
//  11. Forget only after deadline and budget, when no message of the attempt can matter.
//  12. Give every Command exactly one Result, cancelled ones included; run Hard ones only when
//     what made them is in history; run undo commands on a disconnected context.
//  13. Complete StepPlace into history before its Result is applied; mint a fresh nonce in it.
//  14. Ask the reader that the coordinator names, at its incarnation; call anything but its
//     own recorded answer VerdictUnknown. Apply re-attach signals before a place's result.
//  15. Compare the original run id with the run's in every activity that plans, moves or
//     commits; answer CodeReset when they differ.
//  16. Hold one lock around Reading's test and record, write the byte after it, and drop what
//     Deliver refuses. Tell a reader that is named later the newest attempt before it reads.
//  17. Renew at RenewEvery and stop acting at HolderLease, counted from before the request.
//  18. Answer CodeUnavailable for anything that failed without a typed refusal.
package handoff
