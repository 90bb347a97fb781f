// Package refengine is the reference engine: a complete serving process, small
// enough to read, that takes part in a handoff as P, as D or as both. Its state
// is real (paged KV, a ring, an n-gram history, a sampler in mid-stream), so a
// handoff that loses or mixes any of it gives other tokens.
//
//	gRPC (server.go)  ── Reserve ─▶ target.go ─┐            ┌─▶ schedule ─▶ compute
//	                  ── Prefill ─▶ source.go ─┼─ paged ────┤
//	                  ── Attach  ─▶ answer     │            └─▶ transferd/client
//	transferd's events (events.go) ────────────┘
//
// # Duties to transferd
//
//  1. Each source and target has one goroutine that owns its memory from the
//     allocation to the release. It waits until its transferd said *drained*,
//     and until the device has left it, and only then takes the blocks back.
//     There is no third way: no timer frees memory.
//  2. A target's memory is read only after the commit: event and flag page must
//     both say so. An abort ends the answer in the same instant.
//  3. What was announced is never written again under its grant.
//  4. An Open whose outcome is unknown holds its memory until the event that
//     tells; one that was refused never held it.
//
// # Idempotence
//
// Reserve, Prefill and Cancel are keyed by the attempt: a repeat joins what runs
// and answers the present state, for as long as the attempt is remembered (the
// process's life, up to maxTombstones). Attach only reads.
//
// # What is not guaranteed
//
// An engine that dies takes its answers with it. A finished answer is kept for
// AnswerKept or until maxAnswers newer ones came, whichever is first.
package refengine
