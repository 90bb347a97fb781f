// Package traffic is a client that trusts nothing: it speaks OpenAI's HTTP with
// server-sent events, checks that a stream is whole and in order, and tells a
// typed refusal from a connection that merely broke. Arrivals come from a closed
// loop, a Poisson process or a trace.
package traffic
