// Package native hands requests over between unmodified engines that move their
// KV themselves: vLLM with NIXL or Mooncake. No daemon of ours stands beside
// them, so the orchestrator's own process is the fence, as far as there can be one.
//
// # How it plugs in
//
// Fleet implements the ports that the steps already use: engine.Directory and
// mover.Directory. The workflow, the coordinator, the ledger and the reader are
// those of every other engine; nothing above knows the difference. That is less
// than a second set of steps, and it keeps one protocol:
//
//	reserve   D is up, of P's revision, and has room as its metrics and our
//	          count of it tell; a target is opened in the table. No prefill
//	          begins before that.
//	prefill   P computes and answers transfer parameters, kept in memory only:
//	          no other process could use them, because the fence is here.
//	transfer  the parameters are landed as the target's one piece and validated
//	          against our own lease, which is shorter than P's and began before
//	          P was asked.
//	commit    D is sent the client's request with the parameters, once. Refused
//	          when the lease is over. From here the engine moves the bytes.
//	reading   the first token is held back until P has been asked again: it is
//	          the same life, and nothing of it expired meanwhile.
//	undo      handoff.Targets, stepped here, answers: closed, never committed, if
//	          and only if D was never sent the request.
//
// # What is lost when this process dies
//
// The table. Its next life has another incarnation, so it refuses to answer for
// the attempts of the old one, and nobody can say whether D was sent the request.
// The workflow then waits for its client to come again with its key (rule 5c,
// clause 8): history names this life as the reader, which delivered nothing of the
// old attempt, whatever D did, so another epoch follows. Without a client it ends
// with outcome_unknown at the deadline. D sees its connection close and aborts;
// what P still pins ends by P's own timer. Two processes must therefore not serve
// one task queue.
//
// # Why no record says that D was asked
//
// Written ahead of each dispatch, in history or in a store, it would prove closed
// those attempts that died before it, at the price of a synced write in the way of
// every first token, and prove nothing about the others. What the reader's fence
// proves is more, and costs nothing: no byte of the old attempt is delivered again,
// whether D was asked or not. The old reader's connection to its client is gone, or
// its client has left it (clause 7); only the process that sent D the request can
// read D's answer, on that connection; and the next epoch has its own request id
// and cache salt at D, so that it finds nothing of the old one there. A record could
// let a run go on without its client, but nobody would read what it computes.
//
// A decode that D has not noticed to be abandoned yet is waste, as after any cancel;
// where P pushes, its write may still land after D's abort, as after any cancel too:
// see vllm.Gaps.
//
// P's blocks are freed by D's fetch, by D's refusal (Server.Reject) or by P's
// timer; this package never says that memory is free.
package native
