// Package native proves the hand-off between unmodified engines on real
// processes: Temporal and `surehand serve`, in front of fake vLLM servers that go
// wrong as the real ones do (activities/engine/vllm/vllmtest).
package native
