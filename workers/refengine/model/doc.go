// Package model is the reference engine's language model: a small
// decoder-only transformer over bytes, in plain Go, with its trained weights
// embedded.
//
// It is small, but it has the kinds of state that make a handoff hard:
//
//   - paged KV: the full-attention layers keep K and V in blocks of 16 tokens
//     that lie anywhere in an arena (package paged);
//   - a ring: one layer attends over a sliding window, and its K and V live in
//     a ring that later positions overwrite;
//   - an n-gram history: the last tokens, hashed into the next token's input;
//   - a sampler: a random generator in mid-stream, and the first token.
//
// A decode that lacks any of them, or has another request's, gives other
// tokens. The tests flip one byte of each and watch the logits change.
//
// # What the caller must do
//
//  1. Give State memory of the right size, empty or handed over whole.
//  2. Feed each position once, in order. State.Pos is the next position.
//  3. Keep blocks, ring and items alive, and unshared, while Forward runs. A
//     Runner serves one goroutine; a Model serves any number of them.
//  4. After an error, give the sequence up: its state is half written.
//
// # Bitwise repeatability
//
// The logits of a position are the same bits whatever the chunks in which the
// prompt came, whichever blocks hold it and whichever process computed it.
// Each output element is summed in one order (kernel.go), each product is
// rounded by an explicit conversion, so that no compiler may fuse it with the
// addition, and nothing depends on the number of rows in a call.
package model
