// Package vllmtest imitates vLLM servers of a NIXL or Mooncake P/D pair well
// enough to be wrong in the ways that real ones are: P's lease lapses and D then
// answers HTTP 200 with another prompt's tokens; P answers without parameters; D
// is full, refuses, breaks or dies. Loopback only. What the real servers do was
// found by running them.
package vllmtest
