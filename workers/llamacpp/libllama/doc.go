// Package libllama is llama.cpp's C library, loaded into this process at run
// time: no C compiler, no cgo. It offers only what a handoff needs: tokens,
// the prompt of a chat, decoding one sequence of many, and a sequence's state as
// bytes.
//
// # What is trusted
//
// The library is foreign code in our address space: it runs in the engine's
// process alone, never in one that decides anything. State that it is given to
// load must have been checked before: it does not notice flipped bits.
//
// # Versions
//
// Two parameter structs go by value. We set the first four fields of one, which
// have been the same in every release, prove by the defaults that we read them
// where they are, and pass on the rest as it came. A library whose structs do not
// fit into what we can pass is refused.
//
// # Threads
//
// A Context is for one goroutine at a time; a Model for any number.
package libllama
