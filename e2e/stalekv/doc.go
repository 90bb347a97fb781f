// Package stalekv shows the failure that Surehand exists for, on real vLLM.
//
// P pins what it computed for a lease. Nothing renews the lease while a router
// holds the request between P and D; when it lapses, P gives the blocks to other
// prompts, and D, asked at last, reads those. Stock vLLM with NIXL then answers
// HTTP 200 with another prompt's continuation: only P knows, and says so in a
// counter and a log line. The same hold in front of the same D through Surehand
// ends in the right tokens, computed by another epoch, or in a typed refusal.
package stalekv
