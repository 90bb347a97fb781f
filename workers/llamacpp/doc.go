// Package llamacpp makes llama.cpp the compute of an engine: real weights, real
// text, and for a state the bytes that the library itself writes for a sequence.
// The shell around it (attempts, transferd, leases, answers) is refengine's.
//
//	P: decode the prompt ─▶ draw the first token ─▶ export ─▶ blocks, sealed
//	D: committed ─▶ copy out ─▶ digest ─▶ import ─▶ that token, then decode
//
// # The state
//
// It is opaque: libllama's bytes, cut into pieces of one block's size; only their
// number follows from the number of tokens, so D can reserve before P begins.
// What does not fill a block, and what we add to it (size, digest, sampler, first
// token) are items. P's state is whole only at the end, and is announced then.
//
// # What is guaranteed
//
//  1. Nothing is imported before its own SHA-256, sealed by P, is checked on a
//     private copy, besides the checksum of each piece that transferd checked:
//     libllama loads flipped bits without a word.
//  2. A sequence that was not imported whole is cleared and gives no token.
//  3. A sequence is cleared before each use and after it.
//
// # What is not
//
// Two CPUs with other vector instructions round differently: the state moves
// exactly, the logits after it are the D's own.
package llamacpp
