// Package llamacpp proves the handoff on llama.cpp: real weights in two P and two
// D processes, each beside a transferd, driven by the real gateway, workflow and
// store; what is right is what the library says alone in this process. Run it
// with -tags e2e; the first run installs libraries and weights, 250 MB to fetch.
package llamacpp
