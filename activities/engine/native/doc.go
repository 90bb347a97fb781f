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
// the attempts of the old one, and the workflow ends with a typed error unless the
// reader can give the attempt up (rule 5c). D sees its connection close and
// aborts; what P still pins ends by P's own timer. Two processes must therefore
// not serve one task queue.
//
// P's blocks are freed by D's fetch, by D's refusal (Server.Reject) or by P's
// timer; this package never says that memory is free.
package native
