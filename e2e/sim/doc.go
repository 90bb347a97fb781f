// Package sim runs one handoff in virtual time (testing/synctest) under one
// seeded scheduler, with faults at named points.
//
// What is real: workflows.Handoff in Temporal's test environment, the steps and
// their Attempts, fence.Core and the pull loop of every daemon, memledger, the
// reader's fence and every machine of contracts/handoff. What is simulated: the
// net between processes (each ask and each answer is a message, and the
// scheduler alone decides which arrives next), Temporal's history (what a
// completed task recorded, a takeover that goes on from there, a late completion
// that is refused), engines (KV that depends on its attempt, free memory that is
// poisoned), one client and two gateways.
//
// Whenever nothing runs, the whole state is looked at with handoff.Invariants;
// each event of a daemon must be a step of the transition table. Once the client
// has its end and everything healed, nothing may be held any more (S9), within
// bounds that are virtual and so exact (L1, L2).
//
// A Case is a seed and faults; a case that fails is printed as the transcript
// that its file in testdata holds from then on.
package sim
