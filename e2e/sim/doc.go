// Package sim runs one handoff in virtual time (testing/synctest) under one
// seeded scheduler, with faults at named points.
//
// What is real: workflows.Handoff on the SDK's coroutines, the steps and
// their Attempts, fence.Core and the pull loop of every daemon, memledger, the
// reader's fence and every machine of contracts/handoff. What is simulated: the
// net between processes (each ask and each answer is a message, and the
// scheduler alone decides which arrives next), Temporal's server and what the SDK
// makes of its tasks, engines (KV that depends on its attempt, free memory that is
// poisoned), one client and two gateways.
//
// Of Temporal: a workflow task is given all events since the last completed one at
// once (signals, a cancel, timers, activities' ends); what comes meanwhile waits for
// the next task. Local activities run within the task, their results and what the
// workflow ordered are recorded when it is completed, or by its heartbeat at four
// fifths of its timeout. A task that is lost leaves what its local activities did, and
// nothing in history; the same becomes of one that would close the run over an event
// that came meanwhile. Only the task under way can be completed, and once: a worker
// whose completion was taken and not answered forgets the workflow. Who takes it over
// goes through the completed tasks as they were, timers included, and must ask for
// the same (S18). Activities and timers are the server's and outlive their worker.
// Every fourth seed has its prefill and transfer as such activities. Not here: updates
// (signals stand for them), queries, the run's own timeout.
//
// Whenever nothing runs, the whole state is looked at with handoff.Invariants;
// each event of a daemon must be a step of the transition table. Once the client
// has its end and everything healed, nothing may be held any more (S9), within
// bounds that are virtual and so exact (L1, L2).
//
// A Case is a seed and faults; a case that fails is printed as the transcript
// that its file in testdata holds from then on.
package sim
