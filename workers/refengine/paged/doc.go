// Package paged lays out, allocates and shares the memory of an engine's
// sequences: KV blocks, ring slots and items slots, all in one arena that the
// caller maps (a memfd, so that transferd can register it).
//
//	[ block 0 | block 1 | … | ring slot 0 | … | items slot 0 | … ]
//	  block:  layer 0 run | layer 1 run | …      run: K of 16 tokens, then V
//
// Each (block, layer) run, each ring and each items slot is one contiguous
// range, so that a transfer is a list of offsets and lengths.
//
// # Lifetime: the rule that bites
//
// A block is held by references: one for each sequence that uses it and one for
// each grant that lets a peer read it. At zero it is scrubbed and free, unless
// the prefix cache keeps it. Nothing here runs on a timer. Whoever lets a peer
// read takes a reference and drops it only on proof that the reader is done.
//
// # What is guaranteed
//
//  1. free + held + cached = all blocks, always; the same for slots.
//  2. Memory is scrubbed between two holders, so no tenant reads another's
//     bytes: with zeros, or with Poison's NaN so that a stale read is loud.
//  3. A prefix hit needs the same salt and the same tokens from the first one
//     on. An empty salt shares nothing.
//  4. A shared block is never handed out to write.
package paged
