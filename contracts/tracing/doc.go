// Package tracing says what a handoff's spans are called and carry, and moves
// their context between processes as W3C's traceparent.
//
// Only a gateway begins a trace. Everybody else adds spans to one that came with
// a call, or with the workflow's input, and adds none where there is none: a
// poll is not a trace. Nothing here takes text of a prompt or an answer: a span
// carries ids, epochs, numbers and codes.
//
// Until Use is called nothing is traced, and a call costs one atomic load.
package tracing
