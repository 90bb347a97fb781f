// Package explore searches every interleaving of a small world around the real
// machines of contracts/handoff: one request, two epochs (and a rival nonce of
// each), two D daemons, one P, two gateways that are workers too, a durable
// history and a client. Breadth-first over hashed states, so that the first
// violation comes with a shortest trace.
//
// What is real: Targets, Sources, Reading, Coordinator, Capacity and Pins, cloned
// for each state. What is model: the network, the history, engines' memory and
// the client.
//
//   - Messages (Open, Prefill, Commit, Undo, Release, give-up, TP's yes) are a set
//     that is never emptied: each may be delivered at any time, any number of
//     times, or never. Answers of undo steps and of the reader may be read at one
//     instant and used later (SlowAnswers).
//   - Every process may simply not step, so a paused worker, its takeover and its
//     return need nothing special. A worker's step may end without an answer at
//     any moment.
//   - History has the plan of epoch 1 and what a completed workflow task
//     recorded; a takeover begins from there. A task takes what history holds in
//     the order of workflows: the cancel, the reader's report, a re-attach. That a
//     task took another plan or another reader is history before anything acts
//     under it, so both are one step with it.
//   - Each fault happens at most once a run.
//
// Checked on every edge: handoff.Invariants over a handoff.World; after a
// complete search: from every reachable state a clean one can be reached over
// edges that are no faults (AG EF clean), which finds leaks and deadlocks.
//
// Two requests on the same daemons are walked over as the product of what each
// does alone; both in the same real tables (CloseTogether) give the same walk.
//
// Not modelled: more than one P, TP ranks, several pieces in coarse scenarios,
// the token journal and resume, engines' schedulers, real time, budgets of
// quarantine, two requests in the ledger except in its own small model.
package explore
